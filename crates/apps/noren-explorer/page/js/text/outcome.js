// The results for a text: predictions of the model, private text, and the proof that hidden text stays hidden.

import { button } from "../base/dialog.js";
import { el, percent, plural } from "../base/dom.js";

/** Returns sorted positions as a text of ranges: `3..9, 12`; the end of a range is excluded. */
export function runs(places) {
  const spans = [];
  for (const at of places) {
    if (spans.at(-1)?.[1] === at) spans.at(-1)[1] += 1;
    else spans.push([at, at + 1]);
  }
  return spans.map(([a, b]) => (b - a === 1 ? `${a}` : `${a}..${b}`)).join(", ");
}

/** Describes in a sentence the result of the test for leaks, which exchanges hidden text and compares the model's outputs. */
export function proofInWords({ holds, trials, compared, leaks }) {
  const changed = leaks.length;
  const [runs, numbers] = [plural(trials, "run"), plural(compared, "output number")];
  if (holds) return `The model ran again with other secrets in the same places (${runs}), and ${numbers} were compared: no number changed.`;
  if (changed > 0) {
    const tokens = plural(changed, "released token");
    return `The model ran again with other secrets in the same places (${runs}), and ${numbers} were compared; the outputs of ${tokens} changed.`;
  }
  return `The model ran again with other secrets in the same places (${runs}), but the outputs of the secret tokens did not change either.`;
}

/** Returns elements that list the private text that was found, grouped by kind, and show whether this text is hidden. */
export function privateOf({ private: kinds, hidden, units, looked_for: lookedFor, not_looked_for: notLookedFor }) {
  const secret = new Set(hidden);
  const found = Object.entries(kinds).filter(([, tokens]) => tokens.length > 0);
  if (found.length === 0 && hidden.length === 0) {
    return [el("p", { class: "soft" }, `No private text was found. Kinds that were searched for: ${lookedFor.join(", ")}. Kinds that were not searched for: ${notLookedFor}.`)];
  }
  const row = ([kind, tokens]) => {
    const whole = tokens.every((token) => secret.has(token));
    const part = !whole && tokens.some((token) => secret.has(token));
    const places = units.filter((unit) => tokens.some((token) => token >= unit.tokens[0] && token < unit.tokens[1]));
    return el("li", {},
      el("span", { class: "text-kind-name" }, kind),
      el("span", { class: "text-places" }, places.map((unit) => unit.text).join(", ")),
      el("span", { class: whole ? "text-state good" : "text-state bad" }, whole ? "hidden" : part ? "partly readable" : "readable"),
      el("span", { class: "soft" }, `tokens ${runs(tokens)}`));
  };
  return [
    el("ul", { class: "text-found" }, found.map(row)),
    el("p", { class: "soft" }, `Kinds that were searched for: ${lookedFor.join(", ")}. Kinds that were not searched for: ${notLookedFor}.`),
  ];
}

/**
 * Returns elements that show the result of the test for leaks, or a hint if nothing is hidden. `onSave()` is called when the user downloads
 * the proof for `noren verify`.
 */
export function proofOf({ test: proof, hidden }, onSave) {
  if (!proof) return [el("p", { class: "soft" }, "Nothing is hidden, so there is nothing to test. Choose what to hide.")];
  return [
    el("p", { class: `text-proof ${proof.holds ? "good" : "bad"}` },
      el("strong", {}, proof.holds ? "No leak found. " : proof.leaks.length > 0 ? "Leaks. " : "Nothing established. "), proofInWords(proof)),
    proof.holds && el("p", { class: "soft small" },
      `Visible facts about the hidden text (${plural(hidden.length, "token")}): the number and positions of its tokens, and what the rest of the text reveals. `,
      `The outputs of ${plural(proof.secret_changed, "hidden token")} changed, which shows that the test exchanged the secrets.`),
    el("div", {}, button("Download proof", onSave)),
    el("p", { class: "soft small" },
      "The proof: a certificate that the masks of all layers let no hidden token influence another token. ",
      el("code", {}, "noren verify proof.json"),
      " checks it with a second implementation. The file has the positions of private tokens and no text."),
  ];
}

/** Returns elements that show the model's predictions of the next token or of masked tokens, and the generated continuation of the text. */
export function guessesOf({ guesses, withheld, continued, text }) {
  const bar = ({ token, probability }) =>
    el("li", {},
      el("code", {}, token === " " ? "␣" : token),
      el("span", { class: "text-bar" }, el("span", { style: { width: `${(100 * probability).toFixed(1)}%` } })),
      el("span", { class: "soft" }, percent(probability)));
  const guess = ({ token, best }) =>
    el("div", { class: "text-guess" },
      el("h3", {}, token === null || token === undefined ? "Next token" : `Token ${token}, masked`),
      el("ol", {}, best.map(bar)));
  return [
    ...guesses.map(guess),
    continued && el("p", { class: "text-goes-on" },
      el("span", { class: "soft" }, `…${[...text].slice(-32).join("")}`), el("strong", {}, continued)),
    withheld && el("p", { class: "notice warn" }, "Withheld: the text ends inside a secret, and the next tokens could reveal the secret."),
    guesses.length === 0 && !withheld && !continued && el("p", { class: "soft" }, "This model does not predict the next token."),
  ].filter(Boolean);
}
