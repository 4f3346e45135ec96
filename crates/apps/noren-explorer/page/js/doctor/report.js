// The doctor's report: the verdict, the findings, and further notes.

import { button } from "../base/dialog.js";
import { el, number, plural, prose } from "../base/dom.js";

const SEVERITIES = { error: "Error", warning: "Warning", note: "Note" };

/**
 * Describes the cell `[batch row, head, query, key]` as text. The second argument is `[number of batch rows, number of heads]`. The batch
 * row or the head is left out if the mask has only one.
 */
export function cellInWords([b, h, q, k], [batch, heads] = [1, 1]) {
  const where = [batch > 1 && `row ${b}`, heads > 1 && `head ${h}`].filter(Boolean);
  return [...where, `query ${q}, key ${k}`].join(", ");
}

/** Returns true if the file of a report has no mask, only arrays that describe a batch, such as labels. */
const maskless = (report) => report.given === null && !report.faulty;

const NO_MASK = "No mask in this file";
const SIGNS = { bad: "✗", good: "✓", none: "?" };
const VERDICTS = { correct: "Correct", looks_like: "Looks like", cannot_tell: "Cannot tell" };

/** Describes the verdict of a diagnosis in a short text. */
export function verdictInWords(report) {
  if (maskless(report)) return NO_MASK;
  if (!report.faulty) return `${VERDICTS[report.verdict] ?? VERDICTS.cannot_tell}: ${report.sentence}`;
  const classes = report.classes.map((name) => name.replaceAll("_", " "));
  return classes.length ? classes.join(", ") : "Faulty";
}

/** Returns true if no mask is declared, and every cell equals the known mask of the report. */
const isKnown = (report) => report.verdict === "looks_like" && report.expression !== null && / \(0 of \d+ cells differ/.test(report.sentence);

/**
 * Returns elements that show the report of a diagnosis. `onCell([batch row, head, query, key])` is called when the user
 * chooses a wrong cell, `onClass(name)` when the user chooses a class of mistakes. `onMeant(expression)` is called when the user
 * confirms that the mask is the intended one, and without an expression when it is not.
 */
export function reportOf(report, titles, { onCell, onClass, onMeant }) {
  const aside = (title, lines) =>
    lines?.length ? el("div", { class: "doctor-aside" }, el("h3", {}, title), el("ul", {}, lines.map((line) => el("li", {}, line)))) : null;
  const none = maskless(report);
  const arrays = report.arrays?.join(", ") || "none";
  const verdict = report.faulty ? "bad" : report.verdict === "correct" || isKnown(report) ? "good" : "none";
  const questions = (report.questions ?? []).map(({ question, readings }) => [question, ...readings].join(" — "));
  const faults = () => report.classes.map((name) => titles.get(name) ?? name).join(" · ") || "Faulty";
  return [
    el("header", { class: `doctor-verdict ${verdict}` },
      el("span", { class: "doctor-sign", "aria-hidden": "true" }, isKnown(report) ? "=" : SIGNS[verdict]),
      el("div", {},
        el("h2", {}, report.faulty ? faults() : none ? NO_MASK : isKnown(report) ? `Looks like ${report.expression}` : VERDICTS[report.verdict] ?? VERDICTS.cannot_tell),
        none
          ? el("p", {}, `The file has these arrays: ${arrays}. The array of the mask must have the name `, el("code", {}, "mask"), ".")
          : isKnown(report) ? confirmed(report, onMeant)
          : [!report.faulty && el("p", {}, report.sentence), el("p", {}, report.description)].filter(Boolean))),
    report.findings.length > 0 &&
      el("ol", { class: "doctor-findings" }, report.findings.map((f) => finding(f, report, titles, onCell, onClass))),
    aside("Open questions", questions),
    aside("Not known", report.unknown),
  ].filter(Boolean);
}

/** Returns the question whether the known mask is the intended mask, with buttons. */
function confirmed(report, onMeant) {
  const cells = `${number(report.compared_cells)} of ${number(report.compared_cells)} cells. Is that what you meant?`;
  return [
    el("p", {}, cells, " ", button("Yes", () => onMeant(report.expression)), " ", button("No, I meant …", () => onMeant(null))),
    el("p", {}, report.description),
  ];
}

function finding(f, report, titles, onCell, onClass) {
  const cells = f.first_cells.map((cell) => {
    const onclick = () => onCell(cell);
    return el("li", {}, button(cellInWords(cell, report.dims ?? undefined), onclick, { class: "doctor-cell" }));
  });
  const left = f.wrong_cells - f.first_cells.length;
  const line = (name, value) => value && [el("dt", {}, name), el("dd", {}, value)];
  return el("li", { class: `doctor-finding ${f.severity}` },
    el("h3", {},
      el("span", { class: `doctor-severity ${f.severity}` }, SEVERITIES[f.severity] ?? f.severity),
      " ", titles.get(f.class) ?? f.class),
    el("p", { class: "doctor-says" }, f.says),
    el("dl", {},
      line("how sure", f.certainty),
      line("repair", f.repair && el("code", {}, f.repair)),
      line("usual cause", f.cause && prose(f.cause)),
      line("class", button(f.class, () => onClass(f.class), { class: "plain doctor-link" })),
      f.wrong_cells > 0 && line("wrong cells", [
        el("span", {}, plural(f.wrong_cells, "cell")),
        cells.length > 0 && el("ul", { class: "doctor-cells", "aria-label": "positions of the first wrong cells" },
          cells, left > 0 && el("li", { class: "soft" }, `and ${number(left)} more`)),
      ])));
}
