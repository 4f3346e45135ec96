// Masks of real models to start from.

import { el, fill } from "../base/dom.js";
import { openDialog } from "../base/dialog.js";
import { search } from "./fields.js";
import { repairable } from "../base/repairs.js";
import { thumbnail } from "../picture/tiles.js";

/**
 * Returns the changes of the page's state that show a preset: a mask of a real model, or the masks of all its layers. `cell`, `at` (batch
 * row and head) and the layer select the place that the preset demonstrates.
 */
export function presetState({ scene, layers, depth, cell = null, at = [0, 0] }) {
  const { mask, shape = {}, facts = {}, layer = null } = scene;
  return {
    mask,
    shape,
    facts,
    layer,
    other: null,
    camera: null,
    cell,
    at,
    plan: false,
    ...(layers && { flow: { layers, ...(depth && { depth }) } }),
  };
}

/** Opens a dialog with the presets and a search field. */
export async function openPresets(ctx) {
  let presets;
  try {
    presets = await ctx.api.presets();
  } catch (error) {
    const { message, actions } = repairable(error, { now: ctx.state.get(), again: () => openPresets(ctx) });
    return ctx.toast(message, { kind: "error", actions });
  }
  const list = el("ul", { class: "presets" });
  const count = el("p", { class: "hidden-text", role: "status" });
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      target.draw();
    }
  });

  const cards = presets.map((preset) => card(ctx, preset, () => close()));
  cards.forEach(({ picture }) => seen.observe(picture));
  const show = (found) => {
    const none = found.length === 0 && el("li", { class: "soft" }, "No preset contains all words of the search.");
    fill(list, found.map(({ element }) => element), none);
    count.textContent = `${found.length} presets`;
  };
  const close = openDialog("Masks of real models", [count, list], { head: search("Search presets", cards, show, { autofocus: true }) });
}

function card(ctx, preset, close) {
  const picture = el("span", { class: "preset-picture" });
  picture.draw = async () => {
    try {
      const bound = await ctx.api.masks(preset.scene);
      const [batch, head] = bound.patterns.at(-1)?.pairs[0] ?? [0, 0]; // the first row is often without padding
      fill(picture, thumbnail(ctx.api, bound, { batch, head, size: 88 }));
    } catch {
      picture.classList.add("missing"); // the card still has its text
    }
  };
  const element = el(
    "li",
    {},
    el(
      "button",
      {
        type: "button",
        class: "card preset",
        onclick: () => {
          close();
          ctx.go(preset.view ?? "mask", presetState(preset));
        },
      },
      picture,
      el(
        "span",
        { class: "preset-words" },
        el(
          "span",
          { class: "preset-name" },
          preset.name,
          preset.view === "flow" && el("span", { class: "tag" }, "by layers"),
          el("span", { class: "tag" }, preset.family),
        ),
        el("code", {}, preset.layers ? [...new Set(preset.layers)].join("  ·  ") : preset.scene.mask),
        el("span", { class: "preset-says" }, preset.says),
        preset.source && el("span", { class: "preset-source" }, preset.source),
      ),
    ),
  );
  return { element, picture, text: [preset.name, preset.family, preset.says, preset.scene.mask].join(" ") };
}
