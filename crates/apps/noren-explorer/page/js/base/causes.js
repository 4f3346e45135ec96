// Every error that the page can show: the words of the page, the control that the error is about, and repairs of one click. The server names
// the cause of an error; `cause.rs` lists these causes, and a test compares the two lists. Another test opens each `example` in a browser.

import { defined, documentsFor, fitted, fittedRows, lengthsFor, levelsFor, listed, longest, plainSizes, rowsOf, shapeOf, sizesOfArray } from "./facts-made.js";
import { number, plural, total } from "./numbers.js";

const START = { mask: "causal", shape: { len: 24 }, facts: {}, layer: null, at: [0, 0], cell: null, camera: null };
/** The number of tokens to which a repair shortens a mask that is too long. */
const SHORTER = 65_536;

/** Returns a repair that sets the facts in `patch`. A value of undefined removes the fact. */
const facts = (title, now, patch) => ({ title, patch: { facts: defined({ ...now.facts, ...patch }) } });
/** Returns a repair that sets the fact `name` to a list. */
const fact = (name, now, list) => facts(`${name.replace("_", " ")} ${listed(list)}`, now, { [name]: list });
/** Returns a repair that sets the sizes in `patch`. A value of undefined removes the size. */
const shape = (title, now, patch) => ({ title, patch: { shape: defined({ ...now.shape, ...patch }) } });
const isSelf = ({ shape: { q, kv, past, new: more } }) => [q, kv, past, more].every((size) => size === undefined);
/**
 * Returns a list with the repair that sets the length to `len`. The list is empty if the shape has separate sizes for queries and keys, or
 * if `len` is out of range.
 */
const length = (now, len) => (isSelf(now) && len > 0 && len <= 1 << 22 ? [shape(`length ${number(len)}`, now, { len })] : []);

const own = (name) => (name ? `\`${name}\`` : "The mask");

/**
 * Returns a repair (a button beside an error message that changes the page's state). The button shows the last state without an error,
 * `last`; if `last` is null, it shows the mask `causal`. `last` is a part of the page's state and may also have a `title` for the button.
 */
export function back(last) {
  if (!last) return { title: "start with causal", patch: START };
  const { title, ...patch } = last;
  const shown = patch.mask?.length > 40 ? `${patch.mask.slice(0, 39)}…` : patch.mask;
  return { title: title ?? `back to ${shown}`, patch: { ...(patch.mask !== undefined && { layer: null }), ...patch } };
}


/** Returns the words for a selector that names an absent head or batch row. */
const missing = (what, count) => `The mask names a ${what} that does not exist: there ${count === 1 ? "is" : "are"} ${plural(count, what)}, counted from 0.`;
/** Returns the repair that adds the heads or batch rows up to the one that the server's message names. */
function counted(what, message, now, patch) {
  const count = Number(new RegExp(`names ${what} (\\d+)`).exec(message)?.[1]) + 1;
  return shape(plural(count, what), now, patch(count));
}

const AGAIN = { title: "try again", again: true };

/**
 * The errors by cause. `control` names the control that a click opens and focuses, `says(error)` returns the words, and `fixes(error, now)`
 * returns repairs: `patch` changes the state of the page, `edit` changes the text of the mask, and `again` repeats the request. Errors
 * without `says` have the words of the server. `example` is a state of the page with the error; `provoke` names how the tests cause an error
 * that no state has. Each error also has the repair of `back`, unless it is about the server.
 */
export const CAUSES = {
  syntax: {
    control: "editor",
    fixes: ({ repair, start, end }) =>
      repair ? [{ title: `write ${repair}`, edit: (text) => text.slice(0, start) + repair + text.slice(end) }] : [],
    example: { mask: "causal & slidin(3)", shape: { len: 24 } },
  },
  parameters: { control: "editor", fixes: () => [], example: { mask: "prefix([3, 4])", shape: { len: 24, batch: 3 } } },
  "text-too-long": {
    control: "editor",
    says: () => "The mask's text is too long: the page reads up to 16,384 bytes.",
    fixes: () => [],
    example: { mask: Array.from({ length: 2500 }, () => "causal").join(" | "), shape: { len: 24 } },
  },
  "needs-lengths": {
    control: "lengths",
    says: ({ subject: name }) => `${own(name)} hides padding: give the number of real tokens of each batch row.`,
    fixes: ({ sizes }, now) => [fact("lengths", now, lengthsFor(rowsOf(now, sizes), sizes[3]))],
    example: { mask: "causal & padding", shape: { len: 24 } },
  },
  "needs-query-lengths": {
    control: "facts",
    says: ({ subject: name }) => `${own(name)} hides padded queries too, and here the queries are not the last tokens: give the number of real queries of each batch row, \`query_lengths\`.`,
    fixes: ({ sizes }, now) => [fact("query_lengths", now, lengthsFor(sizes[0], sizes[2]))],
    example: { mask: "padding(on=both)", shape: { q: 8, kv: 12, query_offset: 0 }, facts: { lengths: [10] } },
  },
  "needs-documents": {
    control: "documents",
    says: ({ subject: name }) => `${own(name)} keeps packed documents apart: give the length of each document.`,
    fixes: ({ sizes }, now) => [fact("documents", now, documentsFor(sizes[3]))],
    example: { mask: "causal & documents", shape: { len: 24 } },
  },
  "needs-label": {
    control: "labels",
    says: ({ subject: name }) => `The mask uses the label ${name}: give the positions of the tokens with this label.`,
    fixes({ subject: name, sizes }, now) {
      const from = Math.floor(sizes[3] / 3);
      const range = `${from}..${Math.max(from + 1, Math.floor(sizes[3] / 2))}`;
      return [facts(`label ${name} at ${range}`, now, { labels: { ...now.facts.labels, [name]: [range] } })];
    },
    example: { mask: 'causal - keys(label="pii")', shape: { len: 24 } },
  },
  "needs-levels": {
    control: "levels",
    says: ({ subject: name }) => `${own(name)} compares clearance levels: give one level for each token.`,
    fixes: ({ sizes }, now) =>
      sizes[3] <= SHORTER
        ? [fact("levels", now, levelsFor(sizes[3]))]
        : [{ title: "length 24, with levels", patch: { shape: { len: 24 }, facts: { ...now.facts, levels: levelsFor(24) } } }],
    example: { mask: "causal & clearance", shape: { len: 24 } },
  },
  "needs-layer": {
    control: "layer",
    says: () => "The mask differs between layers: choose the layer to see.",
    fixes: () => [0, 1].map((layer) => ({ title: `layer ${layer}`, patch: { layer } })),
    example: { mask: "layers(every 2: sliding(4), else: causal)", shape: { len: 24 } },
  },
  "needs-array": {
    control: "facts",
    says: ({ subject: name }) => `The mask takes its cells from the array ${name}, which the facts do not have.`,
    fixes({ subject: name }, now) {
      const keep = Array.from({ length: 8 }, (_, q) => Array.from({ length: 8 }, (_, k) => (k <= q ? 1 : 0)));
      const arrays = { ...now.facts.arrays, [name]: { keep } };
      return [{ title: `array ${name}: causal, 8 tokens`, patch: { shape: { len: 8 }, facts: { ...now.facts, arrays } } }];
    },
    example: { mask: "dense(mine)", shape: { len: 24 } },
  },
  "lengths-fit": {
    control: "lengths",
    says: ({ sizes }) => sizes
      ? `The lengths do not fit ${plural(sizes[0], "batch row")} of ${plural(sizes[3], "token")}: give one length for each row, up to the number of tokens.`
      : "The lengths are not usable: give one whole number for each batch row, and no other fact about padding.",
    fixes({ sizes }, now) {
      const given = Array.isArray(now.facts.lengths) ? now.facts.lengths : [];
      const lengths = fittedRows(given.length ? given : lengthsFor(3, sizes?.[3] ?? 24), sizes?.[0] ?? 1).map((n) => Math.min(n, sizes?.[3] ?? 24));
      return [
        facts(`lengths ${listed(lengths)}`, now, { lengths, real_keys: undefined }),
        ...(given.length && given.length !== sizes?.[0] ? [shape(plural(given.length, "batch row"), now, { batch: given.length })] : []),
        ...(longest(given) > sizes?.[3] ? length(now, longest(given)) : []),
      ].filter((fix, i) => i === 0 || fits(now, fix, given));
    },
    example: { mask: "padding", shape: { len: 24 }, facts: { lengths: [30, 12] } },
  },
  "lengths-text": {
    control: "editor",
    says: ({ subject: name, sizes }) => `The lengths in ${own(name)} do not fit ${plural(sizes[0], "batch row")} of ${plural(sizes[3], "token")}.`,
    fixes({ subject: name }, now) {
      const lengths = (/\[([\d\s,]*)\]/.exec(name)?.[1] ?? "").split(",").map(Number);
      const len = Math.max(now.shape.len ?? 0, longest(lengths));
      return isSelf(now) ? [shape(`${plural(lengths.length, "batch row")} of ${plural(len, "token")}`, now, { batch: lengths.length, len })] : [];
    },
    example: { mask: "padding(lengths=[5, 3])", shape: { len: 4, batch: 3 } },
  },
  "documents-fit": {
    control: "documents",
    says: ({ sizes }) => `The documents do not cover the ${plural(sizes?.[3] ?? 0, "token")} of each batch row.`,
    fixes({ sizes }, now) {
      const [batch, , , len] = sizes ?? [1, 1, 24, 24];
      const given = now.facts.documents;
      const lists = Array.isArray(given?.[0]) ? given : [given];
      if (!lists.every((list) => plainSizes(list))) return [fact("documents", now, documentsFor(len))];
      const sum = total(lists[0]);
      const rows = lists.map((list) => fitted(list, len));
      return [
        facts(sum < len ? `repeat the documents up to ${number(len)}` : `cut the documents at ${number(len)}`, now, {
          documents: Array.isArray(given[0]) ? fittedRows(rows, batch) : rows[0],
        }),
        ...(lists.every((list) => total(list) === sum) && [1, batch].includes(lists.length) ? length(now, sum) : []),
      ];
    },
    example: { mask: "causal & documents", shape: { len: 131_072 }, facts: { documents: [610, 1200, 90] } },
  },
  "documents-text": {
    control: "editor",
    says: ({ subject: name, sizes }) => `The documents in ${own(name)} do not cover the ${plural(sizes[3], "token")} of each batch row.`,
    fixes({ subject: name, sizes }, now) {
      const lengths = (/\[([\d\s,]*)\]/.exec(name)?.[1] ?? "").split(",").map(Number);
      const list = fitted(lengths, sizes[3]).join(", ");
      const written = { title: total(lengths) < sizes[3] ? `repeat the documents up to ${number(sizes[3])}` : `cut the documents at ${number(sizes[3])}` };
      return [...length(now, total(lengths)), { ...written, edit: (text) => text.replace(/documents\(\s*(lengths\s*=\s*)?\[[^\]]*\]\s*\)/, `documents([${list}])`) }];
    },
    example: { mask: "causal & documents([5, 3])", shape: { len: 24 } },
  },
  "label-fit": {
    control: "labels",
    says: ({ subject: name, sizes }) => `The positions of the label ${name} do not fit ${plural(sizes?.[3] ?? 0, "token")}.`,
    fixes({ subject: name, sizes }, now) {
      const [batch, , , len] = sizes ?? [1, 1, 24, 24];
      const given = now.facts.labels?.[name];
      if (!Array.isArray(given)) return [facts("remove the labels", now, { labels: undefined })];
      const ends = (entry) => (typeof entry === "string" ? entry.split("..").map((part) => (part === "" ? NaN : Number(part))) : [entry, entry + 1]);
      const cut = (list) => list.filter((entry) => !(ends(entry)[0] >= len)).map((entry) => (ends(entry)[1] > len ? `${ends(entry)[0] || 0}..${len}` : entry));
      const positions = given.some(Array.isArray) ? fittedRows(given.map(cut), batch) : cut(given);
      const end = longest(given.flat().map((entry) => ends(entry)[1] || 0));
      return [
        facts(`keep the label below ${number(len)}`, now, { labels: { ...now.facts.labels, [name]: positions } }),
        ...(end > len ? length(now, end) : []),
      ];
    },
    example: { mask: 'causal - keys(label="pii")', shape: { len: 24 }, facts: { labels: { pii: [3, "20..30"] } } },
  },
  "levels-fit": {
    control: "levels",
    says: ({ sizes }) => `The clearance levels do not fit ${plural(sizes?.[3] ?? 0, "token")}: give one level for each token.`,
    fixes({ sizes }, now) {
      const [batch, , , len] = sizes ?? [1, 1, 24, 24];
      const given = now.facts.levels;
      const fill = (list) => Array.from({ length: len }, (_, at) => list[at] ?? 0);
      const lists = Array.isArray(given?.[0]) ? fittedRows(given.map(fill), batch) : plainSizes(given) ? fill(given) : levelsFor(len);
      return [
        facts(`levels for ${plural(len, "token")}, missing ones 0`, now, { levels: lists }),
        ...(plainSizes(given) ? length(now, given.length) : []),
      ];
    },
    example: { mask: "causal & clearance", shape: { len: 24 }, facts: { levels: [0, 0, 2, 1] } },
  },
  "array-fit": {
    control: "facts",
    says: ({ subject: name }) => `The array of ${own(name)} has other sizes than the shape.`,
    fixes({ subject: name }, now) {
      const array = now.facts.arrays?.[/\(\s*"?([^")]*)/.exec(name)?.[1]];
      const sizes = sizesOfArray(array);
      if (!sizes) return [];
      const [, , q, kv] = sizes;
      return [{ title: `${number(q)} × ${number(kv)}, the size of the array`, patch: { shape: shapeOf(sizes, 0) } }];
    },
    example: { mask: "dense(mine)", shape: { len: 24 }, facts: { arrays: { mine: { keep: [[1, 0], [1, 1]] } } } },
  },
  "facts-fit": {
    control: "facts",
    says: ({ subject: name }) => `The fact \`${name}\` is not usable with this shape.`,
    fixes: ({ subject: name }, now) =>
      Object.hasOwn(now.facts, name)
        ? [facts(`remove ${name}`, now, { [name]: undefined })]
        : [{ title: "remove all facts", patch: { facts: {} } }],
    example: { mask: "causal", shape: { len: 24 }, facts: { positions: [0, 1, 2] } },
  },
  "zero-size": {
    control: ({ subject: name }, now) => (isSelf(now) && ["q", "kv"].includes(name) ? "len" : name === "kv" && "past" in now.shape ? "past" : name === "q" && "new" in now.shape ? "new" : name),
    says: () => "A size is 0: give at least 1.",
    fixes({ subject: name }, now) {
      if (isSelf(now) && ["q", "kv"].includes(name)) return length(now, 24);
      if (name === "q" && "new" in now.shape) return [shape("1 new query", now, { new: 1 })];
      const words = { q: "1 query", kv: "1 key", batch: "1 batch row", heads: "1 head", kv_heads: "1 KV head" };
      return [shape(words[name], now, { [name]: 1, ...(["q", "kv"].includes(name) && { query_offset: 0 }) })];
    },
    example: { mask: "causal", shape: { len: 0 } },
  },
  "too-long": {
    control: (_, now) => (isSelf(now) ? "len" : "past" in now.shape ? "past" : now.shape.q > now.shape.kv ? "q" : "kv"),
    says: () => "The mask is too long: the page shows up to 4,194,304 queries and keys.",
    fixes(_, now) {
      if (isSelf(now)) return length(now, SHORTER);
      const names = ["q", "kv", "past", "new"].filter((name) => now.shape[name] > SHORTER);
      return [shape(`at most ${number(SHORTER)} of each`, now, Object.fromEntries(names.map((name) => [name, SHORTER])))];
    },
    example: { mask: "causal", shape: { len: 5_000_000 } },
  },
  "too-many-pairs": {
    control: "heads",
    says: () => "There are too many pictures: the page shows up to 4,096 pairs of batch row and head.",
    fixes: (_, now) => [shape("1 batch row, 8 heads", now, { batch: 1, heads: 8, kv_heads: undefined })],
    example: { mask: "causal", shape: { len: 24, batch: 512, heads: 64 } },
  },
  "heads-multiple": {
    control: "kv_heads",
    says: () => "The heads cannot share the KV heads equally: the number of heads must be a multiple of the number of KV heads.",
    fixes(_, now) {
      const { heads = 1, kv_heads: wanted } = now.shape;
      let count = Math.min(wanted, heads);
      while (heads % count !== 0) count -= 1;
      return [shape(plural(count, "KV head"), now, { kv_heads: count }), shape(plural(wanted * Math.ceil(heads / wanted), "head"), now, { heads: wanted * Math.ceil(heads / wanted) })];
    },
    example: { mask: "causal", shape: { len: 24, heads: 8, kv_heads: 3 } },
  },
  "offsets-count": {
    control: "query_offset",
    says: () => "Give one query offset, or one for each batch row.",
    fixes(_, now) {
      const [first, ...rest] = now.shape.query_offset;
      return [shape(`query offset ${first}`, now, { query_offset: first }), shape(plural(rest.length + 1, "batch row"), now, { batch: rest.length + 1 })];
    },
    example: { mask: "causal", shape: { q: 4, kv: 12, query_offset: [8, 6], batch: 3 } },
  },
  "needs-offset": {
    control: "query_offset",
    says: ({ sizes }) => `There are ${number(sizes[2])} queries and ${number(sizes[3])} keys: give the position of the first query among the keys.`,
    fixes({ sizes: [, , q, kv] }, now) {
      const offset = (query_offset, title) => shape(title, { ...now, shape: { ...now.shape, len: undefined } }, { q, kv, query_offset });
      return [...(kv > q ? [offset(kv - q, `the last ${number(q)} positions: query offset ${number(kv - q)}`)] : []), offset(0, "query offset 0")];
    },
    example: { mask: "causal", shape: { q: 4, kv: 12 } },
  },
  "shape-twice": {
    control: "kind",
    says: ({ subject: name }) => (name ? "The cached keys already give the positions of the queries: leave the query offset out." : "The sizes exclude each other: give a length, or queries and keys, or cached keys and new queries."),
    fixes({ subject: name }, now) {
      if (name) return [shape("no query offset", now, { query_offset: undefined })];
      const { len, q, kv, past, new: more, batch, heads, kv_heads } = now.shape;
      const rest = { batch, heads, kv_heads };
      const kinds = [
        len !== undefined && [`length ${number(len)}`, { len }],
        q !== undefined && kv !== undefined && [`${number(q)} queries, ${number(kv)} keys`, { q, kv, query_offset: Math.max(0, kv - q) }],
        past !== undefined && [`${number(past)} cached keys`, { past, new: more ?? 1 }],
      ];
      return kinds.filter(Boolean).map(([title, sizes]) => ({ title, patch: { shape: defined({ ...rest, ...sizes }) } }));
    },
    example: { mask: "causal", shape: { len: 24, q: 4, kv: 12 } },
  },
  "shape-half": {
    control: ({ subject: name }) => name,
    says: ({ subject: name }) => ({ q: "Give the number of queries too.", kv: "Give the number of keys too.", past: "Give the number of cached keys too." })[name],
    fixes: ({ subject: name }, now) => ({
      q: [shape(plural(now.shape.kv, "query", "queries"), now, { q: now.shape.kv })],
      kv: [shape(plural(now.shape.q, "key"), now, { kv: now.shape.q })],
      past: [shape("no cached keys", now, { past: 0 })],
    })[name],
    example: { mask: "causal", shape: { q: 12 } },
  },
  "head-missing": {
    control: "heads",
    says: ({ sizes }) => missing("head", sizes[1]),
    fixes: ({ message }, now) => [counted("head", message, now, (heads) => ({ heads, kv_heads: undefined }))],
    example: { mask: "heads(0..4: sliding(4), 4..12: causal)", shape: { len: 24, heads: 8 } },
  },
  "row-missing": {
    control: "batch",
    says: ({ sizes }) => missing("batch row", sizes[0]),
    fixes: ({ message }, now) => [counted("batch row", message, now, (batch) => ({ batch }))],
    example: { mask: "batch(0..4: causal, else: full)", shape: { len: 24, batch: 2 } },
  },
  "depth-limit": {
    control: "depth",
    says: () => "A flow has at most 512 layers, and at least one for each mask.",
    fixes: (_, now) => [{ title: "512 layers", patch: { flow: { ...now.flow, depth: 512, layers: now.flow.layers?.slice(0, 512) ?? [now.mask] } } }],
    example: { view: "flow", shape: { len: 24 }, flow: { layers: ["causal"], depth: 600 } },
  },
  "policy-too-long": {
    control: "policy",
    says: () => "The policy is too long: the page reads up to 16,384 bytes.",
    fixes: (_, now) => [{ title: "remove the rules", patch: { flow: { ...now.flow, policy: "" } } }],
    example: { view: "flow", shape: { len: 24 }, flow: { layers: ["causal"], depth: 2, policy: "# a comment\n".repeat(1500) } },
  },
  policy: {
    control: "policy",
    fixes: ({ line }, now) =>
      line ? [{ title: `remove line ${line}`, patch: { flow: { ...now.flow, policy: now.flow.policy.split("\n").filter((_, at) => at !== line - 1).join("\n") } } }]
        : [{ title: "remove the rules", patch: { flow: { ...now.flow, policy: "" } } }],
    example: { view: "flow", shape: { len: 24 }, flow: { layers: ["causal"], depth: 2, policy: "deny: tokens(0..2) -> token(9)\ndeny: nonsense" } },
  },
  "text-empty": {
    control: "text",
    says: () => "The text is empty: write a text.",
    fixes: () => [{ title: "the model's example", patch: { text: {} } }],
    example: { view: "text", text: { text: " " } },
  },
  "row-too-long": {
    control: "len",
    says: () => "One row is shown in numbers for up to 64 keys.",
    fixes: (_, now) => length(now, 64),
    provoke: "row",
  },
  "export-too-large": {
    control: "exports",
    says: () => "The array would have too many cells for a file: the expression is the same mask in one line.",
    fixes: () => [{ title: "export the expression", export: "expression" }],
    provoke: "export",
  },
  resources: { control: "len", says: () => "The request took too long, or needed too much memory: use a smaller mask.", fixes: (_, now) => [...length(now, 1024), AGAIN], provoke: 408 },
  busy: { control: "again", says: () => "The server has too many requests.", fixes: () => [AGAIN], provoke: 503 },
  offline: { control: "again", says: () => "The server does not answer: start it again, then try again.", fixes: () => [AGAIN], provoke: 0 },
  lost: { control: "again", fixes: () => [AGAIN], provoke: 410 },
  defect: { control: "again", says: ({ message }) => `The server has failed: ${message}`, fixes: () => [AGAIN], provoke: 500 },
  refused: { control: "again", fixes: () => [AGAIN], provoke: 413 },
};

/** Returns whether a mask with the repaired shape accepts `lengths`: one length for each batch row, and no length above `len`. */
function fits(now, { patch }, lengths) {
  const { batch = lengths.length, len = now.shape.len } = patch.shape;
  return batch === lengths.length && (len === undefined || longest(lengths) <= len);
}

/** Returns the cause of an error: the cause that the server names, or the cause that follows from the status. */
export function causeOf({ cause, status }) {
  if (cause && CAUSES[cause]) return cause;
  return { 0: "offline", 429: "busy", 503: "busy", 408: "resources", 507: "resources", 410: "lost", 500: "defect" }[status] ?? (status >= 400 && status !== 400 ? "refused" : null);
}

/**
 * Returns what the page shows of an error: `{says, hint, control, fixes}`. `now` is the state of the page, and `last` the last scene without
 * an error, or null.
 */
export function shownError(error, now, last) {
  const cause = causeOf(error);
  const entry = CAUSES[cause] ?? { control: "editor", fixes: () => [] };
  const known = Boolean(entry.says);
  const ours = !entry.fixes(error, now).some((fix) => fix.again);
  return {
    cause,
    says: known ? entry.says(error) : error.message,
    hint: known ? null : error.hint,
    control: typeof entry.control === "function" ? entry.control(error, now) : entry.control,
    fixes: [...entry.fixes(error, now), ...(ours ? [back(last)] : [])],
  };
}
