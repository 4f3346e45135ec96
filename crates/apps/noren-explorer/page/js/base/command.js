// The state of a view as the equivalent `noren` command.

import { copyButton } from "./dialog.js";
import { el } from "./dom.js";

/** Returns a text as one word of a shell command, with quotes if necessary. */
const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${String(word).replaceAll("'", "'\\''")}'`);

/**
 * Returns words as one line of a command. An option is a word of the form `[name, value]`. Words and values that are null or undefined are
 * left out.
 */
export function command(...words) {
  const given = words.flatMap((word) => {
    if (word === null || word === undefined) return [];
    if (!Array.isArray(word)) return [quoted(word)];
    const [name, value] = word;
    if (value === null || value === undefined) return [];
    const to = String(value);
    return [`${name}${to.startsWith("-") ? "=" : " "}${quoted(to)}`]; // a value that begins with a dash would be read as an option
  });
  return ["noren", ...given].join(" ");
}

/** Returns the sizes of a shape as options of a command: pairs `[name, value]`. */
export const shapeOptions = ({ len, q, kv, past, new: more, query_offset, batch, heads, kv_heads }) => [
  ["--len", len], ["--q", q], ["--kv", kv], ["--past", past], ["--new", more],
  ["--query-offset", query_offset && [query_offset].flat().join(",")], ["--batch", batch], ["--heads", heads], ["--kv-heads", kv_heads],
];

/** The maximum number of characters of facts in a command. The command has the name of a file instead of longer facts. */
const LONG = 4000;

/** Returns a command with an option for the facts. */
export function withFacts(line, facts) {
  if (Object.keys(facts).length === 0) return line;
  const given = JSON.stringify(facts);
  return `${line} --facts ${given.length > LONG ? "facts.json" : `<(echo ${quoted(given)})`}`;
}

/** Returns the command that computes the same flow as the view. */
export function flowCommand({ layers, depth, fill, policy, token }, { shape, facts }) {
  const lines = policy.split("\n").map((line) => /^\s*(deny|allow):\s*(.*?)\s*$/.exec(line)).filter(Boolean);
  const rules = lines.map(([, word, rule]) => [`--${word}`, rule]);
  const line = command("flow", ...layers, ["--layers", depth], ...shapeOptions(shape), ["--fill", fill === "nothing" ? null : fill],
    ["--token", token], ...rules);
  return withFacts(line, facts);
}

/** Returns the command that runs the same text as the view. */
export function textCommand({ text, mask, hide, words, layer, head }) {
  const options = [["--mask", mask.trim() || null], ["--hide", hide.length ? hide.join(",") : null],
    ...words.map((word) => ["--word", word]), ["--layer", layer], ["--head", head]];
  if (!text.startsWith("-")) return command("run", text, ...options);
  // A single dash means standard input, at any position.
  return `${text === "-" ? "printf %s - | " : ""}${command("run", ...options, "--", text)}`;
}

/**
 * Returns the command that diagnoses the same file as the view. `meant` is the intended mask. The command binds the intended mask to
 * `dims`, the sizes of the given mask, with the last query at the position of the last key.
 */
export function doctorCommand(name, context, meant, dims) {
  const given = ([key, value]) => ["-d", `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`];
  const [batch, heads, q, kv] = dims;
  const several = (count) => (count > 1 ? count : null);
  const shape = { q, kv, query_offset: q === kv ? null : kv - q, batch: several(batch), heads: several(heads) };
  const sizes = meant ? shapeOptions(shape) : [];
  return command("check", name.startsWith("-") ? `./${name}` : name, ...Object.entries(context).map(given), ["--meant", meant || null], ...sizes);
}

/** Returns a section with a command that the user can show or hide, as `{root, show(line)}`. */
export function commandFold(toast) {
  const code = el("code", {});
  const root = el("details", { class: "fold" }, el("summary", {}, "As a command"),
    el("pre", { class: "command", tabindex: 0, role: "region", "aria-label": "Command" }, code),
    copyButton(() => code.textContent, toast));
  return { root, show: (line) => (code.textContent = line) };
}
