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
 * Returns the tokens of a text with the kinds that the editor colours. Names of atoms have the kind `atom`, names before `=` or `:` have
 * the kind `param`, and other names have the kind `word`.
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

/** Returns all names in the title of the documentation `atom`: for example, one entry documents both `sliding(W)` and `sliding_window(W)`. */
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
  // After an operand, a mask needs an operator: the completion inserts `&` too.
  const joins = !call && endsOperand(behind);
  if (joins) {
    for (const atom of language.atoms) {
      items.push(...calls(atom).map((item) => ({ ...item, insert: `& ${item.insert}`, caret: item.caret === undefined ? undefined : item.caret + 2 })));
    }
  }
  const wantsScore = behind?.text === "+";
  const wantsMask = !behind || ["&", "|", "!", "~", "-", "(", ":"].includes(behind.text);
  if (wantsScore || wantsMask) for (const atom of wantsScore ? language.scores : language.atoms) items.push(...calls(atom));
  if (joins && !typed && !all) return null;
  const fits = (item) => item.name.toLowerCase().startsWith(typed.toLowerCase());
  const inside = (item) => typed.length > 1 && item.name.toLowerCase().includes(typed.toLowerCase());
  const found = [...items.filter(fits), ...items.filter((item) => !fits(item) && inside(item))];
  if (found.length === 0 || (found.length === 1 && found[0].insert === typed)) return null;
  return { from, to, items: found };
}

/** Returns whether a token ends an operand of the mask language: a name, a number or a closing bracket. */
const endsOperand = (token) => token !== undefined && (["name", "number"].includes(token.kind) || [")", "]"].includes(token.text));

/**
 * Returns the text that inserts the mask `mask` between the positions `from` and `to` of a text, with operators where a neighbour is an
 * operand, as `{text, caret}`. `caret` is the position after the mask.
 */
export function joining(text, from, to, mask) {
  const before = tokens(text.slice(0, from)).filter(({ kind }) => kind !== "space").at(-1);
  const after = tokens(text.slice(to)).find(({ kind }) => kind !== "space");
  const spaced = from === 0 || /\s$/.test(text.slice(0, from)) ? "" : " ";
  const left = endsOperand(before) ? `${spaced}& ` : before && before.kind === "sign" && before.text !== "!" && before.text !== "~" ? spaced : "";
  const inside = left + mask;
  const opens = after && (after.kind === "name" || ["(", "!", "~"].includes(after.text));
  const right = opens ? `${/^\s/.test(text.slice(to)) ? " &" : " & "}` : "";
  return { text: inside + right, caret: inside.length };
}

/** Returns a list with one completion, which inserts the name of an elementary mask (atom). Brackets are added unless the atom can be used without brackets. */
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
