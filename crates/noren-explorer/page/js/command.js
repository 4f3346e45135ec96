// As a command: what a view shows, as the `noren` command that says it.

import { copyButton } from "./dialog.js";
import { el } from "./dom.js";

/** A word as a shell takes it. */
export const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${String(word).replaceAll("'", "'\\''")}'`);

/** Words as one command, options given as `[name, value]`; null and undefined leave one out. */
export function command(...words) {
  const given = words.flatMap((word) => {
    if (word === null || word === undefined) return [];
    if (!Array.isArray(word)) return [quoted(word)];
    const [name, value] = word;
    if (value === null || value === undefined) return [];
    const to = String(value);
    return [`${name}${to.startsWith("-") ? "=" : " "}${quoted(to)}`]; // what begins with a dash would be an option of its own
  });
  return ["noren", ...given].join(" ");
}

/** Sizes as options. */
export const shapeOptions = ({ len, q, kv, past, new: more, query_offset, batch, heads, kv_heads }) => [
  ["--len", len], ["--q", q], ["--kv", kv], ["--past", past], ["--new", more],
  ["--query-offset", query_offset && [query_offset].flat().join(",")], ["--batch", batch], ["--heads", heads], ["--kv-heads", kv_heads],
];

/** The stack and policy of the flow view. */
export function flowCommand({ layers, depth, fill, policy, token }, { shape, facts }) {
  const lines = policy.split("\n").map((line) => /^\s*(deny|allow):\s*(.*?)\s*$/.exec(line)).filter(Boolean);
  const rules = lines.map(([, word, rule]) => [`--${word}`, rule]);
  const line = command("flow", ...layers, ["--layers", depth], ...shapeOptions(shape), ["--fill", fill === "nothing" ? null : fill],
    ["--token", token], ...rules);
  return Object.keys(facts).length ? `${line} --facts <(echo ${quoted(JSON.stringify(facts))})` : line;
}

/** The text view's. */
export function textCommand({ text, mask, hide, words, layer, head }) {
  const options = [["--mask", mask.trim() || null], ["--hide", hide.length ? hide.join(",") : null],
    ...words.map((word) => ["--word", word]), ["--layer", layer], ["--head", head]];
  if (!text.startsWith("-")) return command("run", text, ...options);
  // A dash alone is standard input, wherever it stands.
  return `${text === "-" ? "printf %s - | " : ""}${command("run", ...options, "--", text)}`;
}

/** The doctor view's: what is meant has the sizes of the mask that was given, its queries at the end of the keys, as the view has it. */
export function doctorCommand(name, context, meant, dims) {
  const given = ([key, value]) => ["-d", `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`];
  const [batch, heads, q, kv] = dims;
  const several = (count) => (count > 1 ? count : null);
  const shape = { q, kv, query_offset: q === kv ? null : kv - q, batch: several(batch), heads: several(heads) };
  const sizes = meant ? shapeOptions(shape) : [];
  return command("check", name.startsWith("-") ? `./${name}` : name, ...Object.entries(context).map(given), ["--meant", meant || null], ...sizes);
}

/** A part that folds open: `{root, show(line)}`. */
export function commandFold(toast) {
  const code = el("code", {});
  const root = el("details", { class: "fold" }, el("summary", {}, "As a command"),
    el("pre", { class: "command", tabindex: 0, role: "region", "aria-label": "Command" }, code),
    copyButton(() => code.textContent, toast));
  return { root, show: (line) => (code.textContent = line) };
}
