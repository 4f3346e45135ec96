// The explanation of a cell: the result, the expression with its parts marked, and the tree of reasons.

import { button } from "../base/dialog.js";
import { el, fill, inline, number } from "../base/dom.js";

/**
 * Returns the parts of a mask expression that decide whether a cell is allowed. A node of an explanation has an expression, a result, and
 * child nodes for the parts of the expression. If all children have the result of the node, all children decide. Otherwise the first child
 * with this result decides, for example the first false part of `a & b`. If no child has this result, as in `!a`, the first child decides.
 * The children of a deciding child are examined in the same way.
 */
export function deciding(node) {
  const parts = node.parts ?? [];
  if (parts.length === 0) return [node];
  const equal = parts.filter((part) => part.allowed === node.allowed);
  if (equal.length === parts.length) return parts.flatMap(deciding);
  return deciding(equal[0] ?? parts[0]);
}

const sign = (allowed) =>
  el(
    "span",
    { class: `sign ${allowed ? "yes" : "no"}`, "aria-label": allowed ? "true" : "false", role: "img" },
    allowed ? "✓" : "✗",
  );

/** Describes whether a cell is allowed, and why, for screen readers: `query 3 may read key 1: ...`. */
export const sentence = ({ q, k }, { allowed, root }) => {
  const reasons = deciding(root).map(({ why }) => why.replaceAll("`", "")).join("; ");
  return allowed
    ? `query ${number(q)} may read key ${number(k)}: ${reasons}`
    : `query ${number(q)} may not read key ${number(k)}: ${reasons}`;
};

/**
 * Returns the text of the mask as elements, from the root node of an explanation. Parts that were evaluated are marked as true or false,
 * and the parts that decide the result are underlined.
 */
function expression(root) {
  const chosen = deciding(root);
  const parts = [];
  let at = 0;
  const walk = (node) => {
    if (node.parts?.length) return node.parts.forEach(walk);
    const start = root.mask.indexOf(node.mask, at); // parts are listed in the order of the text
    if (start < 0) return undefined;
    parts.push(
      root.mask.slice(at, start),
      el("span", { class: `part ${node.allowed ? "yes" : "no"}${chosen.includes(node) ? " deciding" : ""}` }, node.mask),
    );
    at = start + node.mask.length;
    return undefined;
  };
  walk(root);
  return el("p", { class: "why-expression" }, el("code", {}, parts, root.mask.slice(at)));
}

function tree(node, chosen) {
  return el(
    "li",
    {},
    el(
      "div",
      { class: chosen.includes(node) ? "reason deciding" : "reason" },
      sign(node.allowed),
      el("code", {}, node.mask),
      el("p", {}, inline(node.why)),
    ),
    node.parts?.length > 0 &&
      el(
        "ul",
        {},
        node.parts.map((part) => tree(part, chosen)),
      ),
  );
}

/**
 * Shows the explanation of `cell` in a panel. `answer` is the answer of the server.
 */
export function paintExplanation(panel, { cell, answer, pinned, onUnpin }) {
  const { allowed, root } = answer;
  fill(
    panel,
    el(
      "div",
      { class: "why-head" },
      el("h2", { class: allowed ? "yes" : "no" }, sign(allowed), `${allowed ? "May read" : "May not read"}`),
      pinned && button("Unpin", onUnpin, { class: "plain" }),
    ),
    el(
      "p",
      { class: "why-cell" },
      "query ",
      el("b", {}, number(cell.q)),
      " → key ",
      el("b", {}, number(cell.k)),
      answer.query_position !== cell.q &&
        el("span", { class: "soft" }, `, the query at position ${number(answer.query_position)}`),
      answer.key_position !== cell.k && el("span", { class: "soft" }, `, the key at position ${number(answer.key_position)}`),
    ),
    expression(root),
    el("ul", { class: "reasons" }, tree(root, deciding(root))),
    typeof answer.other_allowed === "boolean" &&
      el(
        "p",
        { class: "why-other" },
        sign(answer.other_allowed),
        `The other mask ${answer.other_allowed ? "allows" : "denies"} this cell.`,
      ),
  );
}

/** Shows in the panel for explanations how the user chooses a cell. */
export function paintHint(panel) {
  fill(
    panel,
    el("h2", {}, "Why?"),
    el(
      "p",
      { class: "soft" },
      "Point at a cell to see why its query may or may not read its key. A click or Enter pins the answer.",
    ),
    el("p", { class: "soft" }, "Queries run down, keys across. Scroll to zoom, drag to pan, ", el("kbd", {}, "?"), " lists the shortcuts."),
  );
}
