// The mask language for the editor: tokens with their colours, the name at the caret, completions.
// Only the server decides whether a text is valid, and its meaning.

const TOKEN =
  /(?<space>\s+)|(?<string>"[^"]*"?)|(?<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)|(?<name>[A-Za-z_][A-Za-z0-9_]*)|(?<sign>\.\.|[&|!~+\-])|(?<bracket>[()[\]])|(?<other>.)/gs;

/** Splits a text into tokens `{kind, text, start, end}`. The tokens cover the whole text. */
export function tokens(text) {
  return [...text.matchAll(TOKEN)].map((match) => {
    const [kind] = Object.entries(match.groups).find(([, value]) => value !== undefined);
    return { kind, text: match[0], start: match.index, end: match.index + match[0].length };
  });
}

/**
 * Returns the tokens of a text with the kinds that the editor colours: names of atoms are `atom`, names before `=` or `:` are `param`,
 * other names are `word`.
 */
export function coloured(text, language) {
  const known = new Set([...language.atoms, ...language.scores].flatMap((atom) => names(atom)));
  const all = tokens(text);
  return all.map((token, i) => {
    if (token.kind !== "name") return token;
    const next = all[i + 1]?.kind === "space" ? all[i + 2] : all[i + 1];
    if (next?.text === "=" || next?.text === ":") return { ...token, kind: "param" };
    return { ...token, kind: known.has(token.text) ? "atom" : "word" };
  });
}

/** Returns all names that the title of an atom contains: the documentation of `sliding(W)` also documents `sliding_window(W)`. */
function names(atom) {
  return [atom.name, ...[...atom.title.matchAll(/`([a-z_]+)/g)].map(([, name]) => name)];
}

/** Returns the documentation of an atom or a score modifier; undefined if the name does not exist. */
function described(name, language) {
  const all = [...language.atoms, ...language.scores];
  return all.find((atom) => atom.name === name) ?? all.find((atom) => names(atom).includes(name));
}

/** Returns the documentation of the atom or score modifier at the caret; undefined if there is no such name. */
export function atomAt(text, caret, language) {
  const all = tokens(text);
  const entry = (name) => described(name, language);
  const under = all.find((token) => token.kind === "name" && token.start <= caret && caret <= token.end && entry(token.text));
  if (under) return entry(under.text);
  const name = enclosing(all, caret)?.name ?? enclosing(all, caret - 1)?.name; // the second: after a closing bracket
  return name ? entry(name) : undefined;
}

/**
 * Returns the innermost call, such as `stride(...)`, whose brackets contain the caret: the name of the call, and the position at which its
 * arguments begin. `all` are the tokens of the text.
 */
function enclosing(all, caret) {
  const open = [];
  let last = null;
  for (const token of all) {
    if (token.start >= caret) break;
    if (token.text === "(") open.push({ name: last?.kind === "name" ? last.text : null, from: token.end });
    if (token.text === ")") open.pop();
    if (token.kind !== "space") last = token;
  }
  return open.findLast((call) => call.name) ?? null;
}

/**
 * Returns the completions at the caret as `{from, to, items: [{insert, name, says, caret}]}`. `insert` replaces the text from `from` to
 * `to`; `caret` is the position of the caret in `insert` afterwards. If `all` is false, names are offered only after at least one letter.
 */
export function complete(text, caret, language, labels, { all = false } = {}) {
  const before = tokens(text.slice(0, caret));
  const current = before.at(-1);
  if (current?.kind === "string" && !/^".*"$/s.test(current.text)) {
    return label(current, caret, labels);
  }
  const typed = current?.kind === "name" ? current.text : "";
  const from = caret - typed.length;
  const to = from + /^\w*/.exec(text.slice(from))[0].length;
  const behind = before.filter((token) => token.kind !== "space" && token.end <= from).at(-1);
  if (!typed && !all) return null;
  const items = [];
  const call = enclosing(before, from);
  const callee = call && described(call.name, language);
  if (behind && ["(", ","].includes(behind.text)) {
    for (const param of callee?.params ?? []) {
      if (!/^\w+$/.test(param.name) || param.name !== param.name.toLowerCase()) continue;
      items.push({ insert: `${param.name}=`, name: `${param.name}=`, says: param.what });
    }
  }
  const wantsScore = behind?.text === "+";
  const wantsMask = !behind || ["&", "|", "!", "~", "-", "(", ":"].includes(behind.text);
  if (wantsScore || wantsMask) for (const atom of wantsScore ? language.scores : language.atoms) items.push(...calls(atom));
  const fits = (item) => item.name.toLowerCase().startsWith(typed.toLowerCase());
  const inside = (item) => typed.length > 1 && item.name.toLowerCase().includes(typed.toLowerCase());
  const found = [...items.filter(fits), ...items.filter((item) => !fits(item) && inside(item))];
  if (found.length === 0 || (found.length === 1 && found[0].insert === typed)) return null;
  return { from, to, items: found };
}

/** Returns a list with one completion, which inserts an atom. Brackets are added unless the atom can be used without brackets. */
function calls(atom) {
  const { name, title } = atom;
  const bare = title.includes(`\`${name}\``);
  return [{ insert: bare ? name : `${name}()`, name, says: brief(atom) || title, caret: bare ? undefined : name.length + 1 }];
}

const brief = (atom) =>
  (atom.doc ?? "")
    .split(/(?<=[.:;])\s/)[0]
    .replace(/[`*]/g, "")
    .slice(0, 90);

function label(current, caret, labels) {
  const typed = current.text.slice(1);
  const items = labels
    .filter((name) => name.startsWith(typed))
    .map((name) => ({ insert: `${name}"`, name, says: "a label that the facts define" }));
  return items.length ? { from: caret - typed.length, to: caret, items } : null;
}
