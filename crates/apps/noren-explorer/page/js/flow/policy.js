// The policy of a stack: rules, the verdict while they are typed, and each violation with its path and its cheapest cut.

import { button } from "../base/dialog.js";
import { debounce, el, fill, number, plural, uid } from "../base/dom.js";
import { RULES } from "./settings.js";
import { paintError } from "../base/repairs.js";

export class PolicyPanel {
  /**
   * `onText(text)` is called when the user changes the rules. `onViolation(index)` is called with the index of the
   * violated rule whose path is drawn, or with null if no path is drawn. `onCertificate()` is called when the user downloads the certificate.
   */
  constructor({ onText, onViolation, onCertificate }) {
    this.onViolation = onViolation;
    const id = uid("policy");
    this.problem = el("div", { class: "wrong", id: `${id}-problem`, hidden: true });
    this.input = el("textarea", {
      id,
      class: "flow-rules",
      rows: 4,
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
      placeholder: "deny: label(pii) -> output",
      "aria-describedby": `${id}-problem`,
      oninput: debounce(() => onText(this.input.value), 120),
      onchange: () => onText(this.input.value), // nothing is lost if the view is left within the pause
    });
    this.verdict = el("p", { class: "flow-verdict", role: "status" });
    this.certificate = el("div", { class: "flow-certificate", hidden: true },
      button("Download certificate", onCertificate),
      el("p", { class: "soft small" }, el("code", {}, "noren verify certificate.json"), " checks it with a second implementation."));
    this.empty = el("p", { class: "soft small", hidden: true });
    this.list = el("ol", { class: "flow-violations" });
    this.more = el("p", { class: "soft small", hidden: true });
    const add = (rule) => {
      const before = this.input.value.replace(/\s*$/, "");
      this.input.value = before ? `${before}\n${rule}` : rule;
      this.input.focus();
      onText(this.input.value);
    };
    const rules = RULES.map(([rule, says]) =>
      button(rule, () => add(rule), { class: "flow-rule", title: says }));
    this.root = el("section", { class: "panel flow-policy", "aria-labelledby": `${id}-title` },
      el("h2", { id: `${id}-title` }, "Policy"),
      el("label", { class: "soft small", for: id }, "Denied pairs of tokens, one rule per line"),
      this.input, this.problem,
      el("details", { class: "fold" }, el("summary", {}, "Example rules"), el("div", { class: "flow-chips" }, rules)),
      this.verdict, this.certificate, this.empty, this.list, this.more);
  }

  /** Shows the policy of the state in the input, unless the user is typing there. */
  text(policy) {
    if (document.activeElement !== this.input && this.input.value !== policy) this.input.value = policy;
  }

  /**
   * Shows the verdict and the violated rules of an answer. `chosen` is the index of the violated rule whose path is drawn. `repairs(error)`
   * returns the message and the repairs to show for an error in the rules.
   */
  show(answer, chosen, repairs) {
    this.say(answer, repairs);
    const violations = answer.violations ?? [];
    const rows = violations.map((violation, index) => this.row(violation, index, index === chosen));
    const focused = this.list.contains(document.activeElement);
    fill(this.list, rows);
    if (focused) this.list.querySelector("[aria-pressed=true]")?.focus();
    const left = answer.violation_count - violations.length;
    this.more.hidden = left <= 0;
    this.more.textContent = `and ${number(left)} more`;
  }

  say({ policy_error: problem, verdict, pairs, depth, heads, batch, violations, violation_count: broken, empty }, repairs) {
    const message = problem && [problem.line && `Line ${problem.line}:`, problem.message].filter(Boolean).join(" ");
    if (JSON.stringify(problem) !== this.problem.dataset.of) paintError(this.problem, problem ? repairs({ ...problem, message }) : null);
    this.problem.dataset.of = JSON.stringify(problem);
    this.input.setAttribute("aria-invalid", problem ? "true" : "false");
    this.certificate.hidden = !verdict;
    this.empty.hidden = !empty?.length;
    this.empty.textContent = (empty ?? []).join("; ");
    const over = [plural(depth, "layer"), plural(heads, "head"), plural(batch, "batch row")].join(", ");
    const words = () => {
      if (problem) return ["", problem.line ? "The rules cannot be read" : "Not checked"];
      if (verdict === "holds") return ["good", `The policy holds: no source token influences its target token in ${plural(pairs, "denied pair")} (${over})`];
      if (verdict === "broken") return ["bad", `The policy is broken: a source token influences its target token in ${reachedInWords(violations, broken)} of ${plural(pairs, "denied pair")} (${over})`];
      if (verdict) return ["", "No result: the rules deny no pair of tokens"];
      return ["", "There is no rule, so nothing is denied"];
    };
    const [kind, text] = words();
    if (this.verdict.textContent === text) return;
    this.verdict.className = `flow-verdict ${kind}`;
    this.verdict.textContent = text;
  }

  row({ rule, batch, pairs, reached_pairs: reached, counted, witness, cut, cut_computed: known }, index, chosen) {
    const bound = counted === "exact" ? "" : "at least ";
    return el("li", {},
      el("button", {
        type: "button",
        class: "card flow-violation",
        "aria-pressed": chosen ? "true" : "false",
        onclick: () => this.onViolation(chosen ? null : index),
      },
      el("code", {}, rule),
      el("span", { class: "flow-reached" }, `${bound}${number(reached)} of ${plural(pairs, "pair")} reached`, batch > 0 ? `, batch row ${batch}` : ""),
      el("span", { class: "flow-path" }, pathInWords(witness)),
      el("span", { class: "soft" }, known ? cutInWords(cut) : "")));
  }
}

/**
 * Returns as text the number of denied pairs of tokens in which the source reaches the target, over all violated rules. `violations` lists
 * violated rules, and `count` is the number of all violated rules. The text begins with `at least` if some violated rules are not listed,
 * or if some pairs are not counted exactly.
 */
function reachedInWords(violations, count) {
  const sum = violations.reduce((sum, violation) => sum + violation.reached_pairs, 0);
  const exact = count === violations.length && violations.every((violation) => violation.counted === "exact");
  return exact ? number(sum) : `at least ${number(sum)}`;
}

/** Describes a path: `token 3 → token 9 in layer 1 → token 14 in layer 4`. */
function pathInWords({ source, steps }) {
  return [`token ${source}`, ...steps.map(([layer, token]) => `token ${token} in layer ${layer}`)].join(" → ");
}

function cutInWords(cut) {
  if (!cut) return "It is not enough to deny cells in a single layer: hide the sources in all layers.";
  return `Cheapest repair in a single layer: deny ${plural(cut[1], "cell")} in layer ${cut[0]}.`;
}
