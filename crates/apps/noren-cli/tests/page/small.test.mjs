// Small screens: nothing is clipped at 390 x 844 in any view or dialog, results come before forms, and fingers pan, zoom and pin.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { explorer, rested, settled } from "./explorer.mjs";

let site;
before(async () => (site = await explorer()));
after(() => site?.close());

const SMALL = { width: 390, height: 844 };

/**
 * Returns a line for each visible element that reaches out of the window, unless it can be scrolled into view sideways, and for each text
 * that its box cuts off without an ellipsis.
 */
const clipped = (page) =>
  page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    const found = [];
    if (document.documentElement.scrollWidth > width) found.push(`the page is ${document.documentElement.scrollWidth} pixels wide`);
    const scrolls = (element) => {
      for (let up = element; up && up !== document.body; up = up.parentElement) if (/auto|scroll/.test(getComputedStyle(up).overflowX)) return true;
      return false;
    };
    const top = [...document.querySelectorAll("dialog[open]")].at(-1) ?? document.body;
    for (const element of top.querySelectorAll("*")) {
      if (!element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }) || element.closest("svg") || element.closest(".hidden-text, .skip, .mirror")) continue;
      const box = element.getBoundingClientRect();
      if (box.width === 0 || box.height === 0) continue;
      const name = `${element.tagName.toLowerCase()}.${element.className} “${element.textContent.trim().slice(0, 30)}”`;
      if ((box.right > width + 0.5 || box.left < -0.5) && !scrolls(element.parentElement)) found.push(`${name} reaches from ${Math.round(box.left)} to ${Math.round(box.right)}`);
      const style = getComputedStyle(element);
      const cut = ["hidden", "clip"].includes(style.overflowX) && style.textOverflow !== "ellipsis" && element.scrollWidth > element.clientWidth + 1;
      if (cut && !element.matches("canvas, .picture, textarea")) found.push(`${name} cuts ${element.scrollWidth} to ${element.clientWidth} pixels`);
    }
    return found;
  });

const MASK = "sliding(6) | causal & keys(0..2) | spans([9..14])";
const press = (name) => async (page) => {
  await page.getByRole("button", { name, exact: true }).click();
  await page.locator("dialog[open] .dialog-body > *").first().waitFor();
};
const unfold = (page) => page.evaluate(() => document.querySelectorAll("details").forEach((fold) => (fold.open = true)));
const example = (page) => page.locator("[data-example]").first().click().then(() => settled(page, ".doctor-picture .picture"));

const PLACES = {
  "the first visit": { state: "" },
  "the mask view": { state: { mask: MASK }, ready: settled },
  "the mask view with all controls open": { state: { mask: MASK, cell: [11, 13], row: { open: true } }, ready: async (page) => { await settled(page); await unfold(page); } },
  "two masks compared": { state: { mask: MASK, other: "sliding(8)", sides: true, cell: [3, 3] }, ready: settled },
  "a million tokens": { state: { mask: "causal & sliding(4096)", shape: { len: 1 << 20 }, cell: [1_000_000, 999_000] }, ready: settled },
  "layers, rows and heads": {
    state: { mask: "layers(every 2: heads(0: sliding(3), else: causal), else: padding)", shape: { len: 4096, heads: 4, batch: 3 }, facts: { lengths: [4096, 9, 30] }, layer: 1 },
    ready: settled,
  },
  "an error with repairs": { state: { mask: "causal & documents", shape: { len: 131_072 }, facts: { documents: [610, 1200, 90] } }, ready: (page) => page.locator(".repair").first().waitFor() },
  "the cost view": { state: { view: "cost", mask: MASK }, ready: async (page) => { await page.locator(".plot").nth(1).waitFor(); await unfold(page); } },
  "the flow view": {
    state: { view: "flow", shape: { len: 24 }, facts: { labels: { pii: [6, 7] } }, flow: { layers: ["sliding(3)", "sliding(3) | keys(0)"], depth: 6, policy: "deny: label(pii) -> token(16)", violation: 0 } },
    ready: async (page) => { await page.locator(".flow-verdict", { hasText: "broken" }).waitFor(); await unfold(page); },
  },
  "the text view": { state: { view: "text", text: { hide: ["email"] } }, ready: async (page) => { await page.locator(".text-proof-of p, .text-proof").first().waitFor(); await rested(page); await unfold(page); } },
  "the doctor": { state: { view: "doctor" }, ready: unfold },
  "a report of the doctor": { state: { view: "doctor" }, ready: async (page) => { await example(page); await unfold(page); } },
  "the lessons": { state: { view: "learn" }, ready: settled },
  "a lesson with numbers": { state: { view: "learn", learn: { lesson: "scores", answer: "!keys(1)" } }, ready: async (page) => { await page.locator(".row-panel svg").waitFor(); await unfold(page); } },
  "the dialog of presets": { state: { mask: MASK }, ready: async (page) => { await press("Presets")(page); await page.locator(".preset").nth(3).waitFor(); } },
  "the dialog of the language": { state: { mask: MASK }, ready: press("Language") },
  "the dialog of keys": { state: { mask: MASK }, ready: press("Keyboard shortcuts") },
  "the menu of exports": { state: { mask: MASK }, ready: async (page) => { await settled(page); await page.getByRole("button", { name: "Export", exact: true }).click(); } },
  "completions": { state: { mask: MASK }, ready: async (page) => { await page.getByRole("textbox", { name: "Mask", exact: true }).click(); await page.keyboard.press("End"); await page.keyboard.type(" & s"); await page.getByRole("option").first().waitFor(); } },
  "the link of the text view": { state: { view: "text" }, ready: async (page) => { await page.getByRole("button", { name: "Link to this view" }).click(); await page.locator("dialog[open]").waitFor(); } },
};

for (const [place, { state, ready = async () => {} }] of Object.entries(PLACES)) {
  test(`nothing is clipped: ${place}`, async () => {
    const page = await site.open(state, SMALL);
    await ready(page);
    await rested(page);
    assert.deepEqual(await clipped(page), []);
    await page.finish();
  });
}

test("results come before forms", async () => {
  const above = async (page, first, second) => {
    const [a, b] = await page.evaluate((names) => names.map((name) => document.querySelector(name).getBoundingClientRect().top), [first, second]);
    assert.ok(a < b, `${first} at ${a}, ${second} at ${b}`);
  };
  for (const [place, first, second] of [
    ["the mask view", ".stage", ".ask"],
    ["the cost view", ".cost-figures", ".ask"],
    ["the flow view", ".flow-summary", ".flow-stack"],
    ["the flow view", ".flow-verdict", ".flow-rules"],
    ["the flow view", ".flow-verdict", ".flow-stack"],
    ["the text view", ".text-proof-of", ".text-ask"],
    ["a report of the doctor", ".doctor-report", ".doctor-side"],
  ]) {
    const page = await site.open(PLACES[place].state, SMALL);
    await PLACES[place].ready(page);
    await above(page, first, second);
    await page.finish();
  }
});

test("fingers zoom, pan and pin", async () => {
  const page = await site.open({ mask: "causal & sliding(200)", shape: { len: 4096 } }, SMALL);
  await settled(page);
  const device = await page.context().newCDPSession(page);
  await device.send("Emulation.setTouchEmulationEnabled", { enabled: true, maxTouchPoints: 2 });
  const box = await page.locator(".picture").first().boundingBox();
  const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
  const touch = (type, ...points) =>
    device.send("Input.dispatchTouchEvent", { type, touchPoints: points.map(([px, py], id) => ({ x: px, y: py, id })) });
  const place = () => page.evaluate(() => document.querySelector(".picture").picture.camera.place);
  assert.equal(await place(), null);
  // two fingers move apart
  await touch("touchStart", [x - 20, y], [x + 20, y]);
  for (let by = 30; by <= 120; by += 15) await touch("touchMove", [x - by, y], [x + by, y]);
  await touch("touchEnd");
  await page.waitForFunction(() => document.querySelector(".picture").picture.camera.place !== null);
  const near = await place();
  assert.ok(near[2] < 4096 / 3, `${near[2]} keys across after the pinch`);
  // one finger drags
  await touch("touchStart", [x, y]);
  for (let by = 10; by <= 60; by += 10) await touch("touchMove", [x - by, y - by]);
  await touch("touchEnd");
  const moved = await place();
  assert.ok(moved[0] > near[0] && moved[1] > near[1], `from ${near} to ${moved}`);
  assert.equal(await page.evaluate(() => document.querySelector(".why-head")), null, "a drag pins nothing");
  // a tap pins
  await touch("touchStart", [x, y]);
  await touch("touchEnd");
  await page.waitForFunction(() => /'cell':\[\d+,\d+\]/.test(location.hash));
  await page.locator(".why-cell").waitFor();
  await page.finish();
});
