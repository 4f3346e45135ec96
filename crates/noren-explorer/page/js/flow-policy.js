// The policy of a stack: rules, the verdict while they are typed, and each violation with its path and its cheapest cut.

import { button } from "./dialog.js";
import { debounce, el, fill, number, plural, uid } from "./dom.js";
import { RULES } from "./flow-settings.js";

export class PolicyPanel {
  /**
   * `onText(text)` is called when the user changes the rules. `onViolation(index)` is called with the violation to draw, or with null for
   * none.
   */
  constructor({ onText, onViolation }) {
    this.onViolation = onViolation;
    const id = uid("policy");
    this.problem = el("p", { class: "wrong", id: `${id}-problem`, hidden: true });
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
    });
    this.verdict = el("p", { class: "flow-verdict", role: "status" });
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
      this.verdict, this.empty, this.list, this.more);
  }

  /** Shows the policy of the state in the input, unless the user is typing there. */
  text(policy) {
    if (document.activeElement !== this.input && this.input.value !== policy) this.input.value = policy;
  }

  /** Shows the verdict and the violations of an answer; `chosen` is the index of the drawn violation. */
  show(answer, chosen) {
    this.say(answer);
    const violations = answer.violations ?? [];
    const rows = violations.map((violation, index) => this.row(violation, index, index === chosen));
    const focused = this.list.contains(document.activeElement);
    fill(this.list, rows);
    if (focused) this.list.querySelector("[aria-pressed=true]")?.focus();
    const left = answer.violation_count - violations.length;
    this.more.hidden = left <= 0;
    this.more.textContent = `and ${number(left)} more`;
  }

  say({ policy_error: problem, verdict, pairs, depth, heads, batch, violations, violation_count: broken, empty }) {
    this.problem.hidden = !problem;
    const parts = problem ? [problem.line && `Line ${problem.line}:`, problem.message, problem.hint] : [];
    this.problem.textContent = parts.filter(Boolean).join(" ");
    this.input.setAttribute("aria-invalid", problem ? "true" : "false");
    this.empty.hidden = !empty?.length;
    this.empty.textContent = (empty ?? []).join("; ");
    const over = [plural(depth, "layer"), plural(heads, "head"), plural(batch, "batch row")].join(", ");
    const words = () => {
      if (problem) return ["", problem.line ? "The rules cannot be read" : "Not checked"];
      if (verdict === "holds") return ["good", `The policy holds: none of ${plural(pairs, "denied pair")} of tokens is reached (${over})`];
      if (verdict === "broken") return ["bad", `The policy is broken: ${reachedInWords(violations, broken)} of ${plural(pairs, "denied pair")} of tokens reached (${over})`];
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
        class: "flow-violation",
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
 * Returns as text the number of pairs of tokens that the policy denies but that flow connects, over all `violations`. `count` is the number
 * of all violations. If some violations are not listed or not counted exactly, the text begins with `at least`.
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
  if (!cut) return "No cut in a single layer is enough: hide the sources in all layers.";
  return `Cheapest cut: ${plural(cut[1], "cell")} in layer ${cut[0]}.`;
}
