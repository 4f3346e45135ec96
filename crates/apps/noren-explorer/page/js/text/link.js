// A dialog with a link to the text view. A note lists the contents of the link; the text is in it only if the user chooses this.

import { button, copyText, openDialog } from "../base/dialog.js";
import { el, plural } from "../base/dom.js";

/** Describes what a link contains. If `secrets` is true, the link also contains the text and the words to hide. */
export function heldInWords({ text, words, hide, mask }, secrets) {
  const held = ["the layer and head", hide.length > 0 && `the kinds to hide (${hide.join(", ")})`, mask.trim() !== "" && "the mask"];
  if (!secrets) return `The link holds ${listed(held)}. It does not hold the text or the words to hide.`;
  const own = [`the whole text (${plural([...text].length, "character")})`, words.length > 0 && plural(words.length, "word") + " to hide"];
  return `The link holds ${listed([...own, ...held])}. Everyone with the link can read these, and a browser that opens it may keep them in its history.`;
}

function listed(parts) {
  const said = parts.filter(Boolean);
  return said.length < 2 ? said.join("") : `${said.slice(0, -1).join(", ")} and ${said.at(-1)}`;
}

/** Shows a dialog with the link to the view. The link contains the user's text only after the user chooses this in the dialog. */
export function openLink({ state, toast }, settings) {
  const held = el("p", { role: "status" });
  const address = el("input", { type: "text", readonly: true, "aria-label": "Link" });
  const secrets = el("input", { type: "checkbox", onchange: () => show() });
  const show = () => {
    const own = secrets.checked ? { text: settings.text, words: settings.words } : {};
    const { text } = state.get();
    address.value = `${location.origin}${location.pathname}${state.link({ text: { ...text, ...own } }, { secrets: secrets.checked })}`;
    held.textContent = heldInWords(settings, secrets.checked);
  };
  const denied = () => {
    address.select();
    toast("The clipboard is not available: copy the selected link.");
  };
  const copy = () => copyText(address.value, toast, `Link copied. ${held.textContent}`, denied);
  show();
  openDialog("Link to this view", [
    el("div", { class: "field" }, address),
    el("label", { class: "check" }, secrets, "Include the text and the words to hide in the link"),
    held,
    el("div", {}, button("Copy", copy)),
  ], { className: "narrow" });
}
