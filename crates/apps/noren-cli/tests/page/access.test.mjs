// Accessibility: the page works by keyboard alone, in both themes and with screen readers; axe finds no violation.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { themed, violations } from "./axe.mjs";
import { explorer, hold, painted, pixel, rested, say, settled } from "./explorer.mjs";

let site;
before(async () => (site = await explorer()));
after(() => site?.close());

/** The states of the views that axe looks at: what each view shows at first, and when it has much to show. */
const STATES = {
  mask: [{}, { mask: "causal & documents", shape: { len: 131_072 }, facts: { documents: [610, 1200, 90] } }],
  cost: [{}, { mask: "causal & sliding(16)", shape: { len: 65_536 } }],
  flow: [{}, { shape: { len: 24 }, flow: { layers: ["causal", "sliding(3)"], depth: 4, policy: "deny: token(2) -> token(9)", violation: 0 } }],
  text: [{}, { text: { text: "Mr Bingley wrote to ann@longbourn.example.", words: ["Bingley"], hide: ["email"] } }],
  doctor: [{}],
  learn: [{}, { learn: { lesson: "heads" } }],
};

for (const width of [1440, 390]) {
  for (const [view, states] of Object.entries(STATES)) {
    test(`axe: ${view}, ${width}`, async () => {
      for (const state of states) {
        const page = await site.open({ view, ...state }, { width, height: width === 390 ? 844 : 900 });
        assert.deepEqual(await themed(page), []);
        await page.finish();
      }
    });
  }

  for (const theme of ["light", "dark"]) {
    const look = { theme, width, height: width === 390 ? 844 : 900 };
    test(`axe: what opens in the mask view, ${theme}, ${width}`, async () => {
      const page = await site.open(
        { mask: "causal & sliding(3)", other: "causal & slidin(4)", cell: [5, 1], shape: { len: 12, heads: 2 } },
        look,
      );
      await settled(page);
      await page.evaluate(() => document.querySelectorAll("details").forEach((fold) => (fold.open = true)));
      await page.locator(".code-panel[data-settled]").waitFor();
      await page.getByRole("textbox", { name: "Mask", exact: true }).click();
      await page.keyboard.press("Control+Space");
      assert.deepEqual(await violations(page), []);
      for (const [name, shown] of [["Presets", ".preset"], ["Language", ".word-list"], ["Keyboard shortcuts", ".shortcuts"], ["Paste an array", "textarea.paste"]]) {
        await page.getByRole("button", { name, exact: true }).click();
        await page.locator(shown).first().waitFor();
        assert.deepEqual(await violations(page), [], name);
        await page.keyboard.press("Escape");
      }
      await page.finish();
    });
  }
}

/** Waits until screen readers hear the explanation of the cell `{q, k}`. */
const announced = (page, { q, k }) =>
  page.waitForFunction(
    ([query, key]) => {
      const { textContent: words } = document.querySelector(".workbench > .hidden-text[aria-live]");
      return words.includes(`query ${query} may`) && words.includes(`key ${key}:`);
    },
    [q, k],
  );

/** Returns the cell of the keyboard's cursor. */
const cursor = (page) => page.evaluate(() => document.querySelector(".picture").picture.cursor());

test("the page works by keyboard alone", async () => {
  const page = await site.open({ shape: { len: 16 }, mask: "causal" });
  await settled(page);
  const reach = async (wanted) => {
    for (let i = 0; i < 60; i += 1) {
      await page.keyboard.press("Tab");
      if (await page.evaluate((at) => document.activeElement.matches(at), wanted)) return;
    }
    assert.fail(`Tab never came to ${wanted}`);
  };
  await page.evaluate(() => document.activeElement.blur());
  await reach("textarea");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("sliding(3)");
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => document.querySelector(".picture").picture.cell(9, 2)?.byte === 0);
  await reach(".picture");
  await page.keyboard.press("ArrowRight");
  const first = await cursor(page);
  for (const key of ["ArrowDown", "ArrowDown", "ArrowLeft"]) await page.keyboard.press(key);
  const moved = await cursor(page);
  assert.deepEqual([moved.q - first.q, moved.k - first.k], [2, -1]);
  await announced(page, moved);
  await page.keyboard.press("Enter");
  await page.waitForFunction(({ q, k }) => location.hash.includes(`'cell':[${q},${k}]`), moved);
  await page.keyboard.press("+");
  await page.waitForFunction(() => document.querySelector(".picture").picture.camera.place !== null);
  await page.keyboard.press("Shift+ArrowLeft");
  await page.keyboard.press("0");
  await page.waitForFunction(() => document.querySelector(".picture").picture.camera.place === null);
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keys" }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.keyboard.press("/");
  assert.ok(await page.evaluate(() => document.activeElement.matches("textarea")));
  await page.finish();
});

test("the figures of a mask do not replace the explanation of a cell, however late they arrive", async () => {
  const page = await site.open({ shape: { len: 16 }, mask: "causal" });
  await settled(page);
  const release = await hold(page, "**/cost*");
  await say(page, "sliding(3)");
  await page.waitForFunction(() => document.querySelector(".picture").picture.cell(9, 2)?.byte === 0);
  await page.locator(".picture").first().focus();
  await page.keyboard.press("ArrowRight");
  await announced(page, await cursor(page));
  release();
  const figures = page.locator(".figures-line");
  await figures.getByText("45 allowed").waitFor();
  await announced(page, await cursor(page));
  assert.equal(await figures.getAttribute("role"), "status");
  await page.finish();
});

test("a cell that the keyboard reaches while the server reads the mask is explained afterwards", async () => {
  const page = await site.open({ shape: { len: 16 }, mask: "causal", cell: [3, 2] });
  await settled(page);
  await announced(page, { q: 3, k: 2 });
  const release = await hold(page, "**/api/masks");
  await say(page, "sliding(3)");
  await page.locator(".picture").first().focus();
  await page.keyboard.press("ArrowDown");
  await page.locator(".picture-veil").first().getByText("Reading the mask …").waitFor();
  release();
  await announced(page, await cursor(page));
  await page.finish();
});

test("the theme is switched and remembered", async () => {
  const page = await site.open({ shape: { len: 4 }, mask: "causal" });
  await settled(page);
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await paper();
  await page.locator("#theme").click();
  assert.equal(await paper(), light);
  await page.locator("#theme").click();
  const dark = await paper();
  assert.notEqual(dark, light);
  await painted(page);
  assert.deepEqual(await pixel(page, 3, 0), [0x7f, 0x9f, 0xf0]);
  await page.reload();
  await page.waitForFunction(() => document.documentElement.dataset.ready);
  assert.equal(await paper(), dark);
  await page.finish();
});

test("nothing is cut off at 360 pixels or at 3840", async () => {
  for (const view of ["mask", "cost", "flow", "text", "doctor", "learn"]) {
    const page = await site.open({ view }, { width: 3840, height: 2160 });
    for (const [width, height] of [
      [3840, 2160],
      [768, 1024],
      [360, 720],
    ]) {
      await page.setViewportSize({ width, height });
      await rested(page);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(wide <= width, `${view} at ${width}: ${wide} pixels wide`);
    }
    await page.finish();
  }
});
