// One row in numbers: the weights are those of the mask's cells and of the model, keys are switched off, the picture is saved.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { themed } from "./axe.mjs";
import { drawn, explorer, say, settled } from "./explorer.mjs";
import { attentionRow, exampleNumbers, readNumbers, rowOf } from "../../../noren-explorer/page/js/row/source.js";
import { decimals, rowInWords, vector } from "../../../noren-explorer/page/js/row/words.js";

let site;
before(async () => (site = await explorer()));
after(() => site?.close());

const panel = (page) => page.locator(".row-panel:visible");

/** Waits until the panel shows the row of query `q`. */
const shows = (page, q) =>
  page.waitForFunction((at) => [...document.querySelectorAll(".row-panel")].some((one) => one.dataset.settled?.endsWith(` ${at}`)), q);

/** Returns the weights of the table: the exact ones, and as they are shown. */
const weights = (page) =>
  panel(page).locator("td[data-weight]").evaluateAll((cells) =>
    cells.map((cell) => ({ exact: Number(cell.dataset.weight), shown: Number(cell.lastChild.textContent) })));

/** Returns the softmax of scores over the keys for which `allowed` is `#`. */
function softmax(scores, allowed) {
  const reads = scores.filter((_, key) => allowed[key] === "#");
  const top = Math.max(...reads);
  const total = reads.reduce((sum, score) => sum + Math.exp(score - top), 0);
  return scores.map((score, key) => (allowed[key] === "#" ? Math.exp(score - top) / total : 0));
}

const near = (given, expected, says) => {
  assert.equal(given.length, expected.length, says);
  given.forEach(({ exact, shown }, key) => {
    assert.equal(Math.fround(exact), Math.fround(expected[key]), `${says}, key ${key}`);
    assert.ok(Math.abs(shown - expected[key]) <= 0.5e-4 + 1e-9, `${says}, key ${key}: ${shown} is shown for ${expected[key]}`);
  });
};

test("numbers and words", () => {
  assert.deepEqual(readNumbers("1, -2.5;3e2  4", 4), [1, -2.5, 300, 4]);
  assert.throws(() => readNumbers("1, two", 2), /“two” is not a finite number/);
  assert.throws(() => readNumbers("1, 1e999", 2), /not a finite number/);
  assert.throws(() => readNumbers("1, 2", 3), /Give 3 numbers/);
  assert.equal(exampleNumbers(-3, 5).scores.length, 5);
  assert.equal(rowOf({ scores: [[1]], values: [[1]], sink: null }, 1, 1), null);
  assert.deepEqual([decimals(-0.0001), decimals(-1.5), decimals(-1e9), vector([1, -2, 3], 2)], ["0.000", "−1.500", "−1.00e+9", "[1.00, −2.00, …]"]);
  const empty = { allowed: [false], weights: [0], empty: true };
  assert.match(rowInWords(empty, { query: "query 0", fill: null }), /divide 0 by 0/);
  assert.match(rowInWords(empty, { query: "query 0", fill: -1e9 }), /scores are almost equal, and so are the weights/);
});

test("a row is computed as attention computes it", () => {
  const values = [[1], [2], [3], [4]];
  const row = (allowed, { sink = null, fill = null, scores = [1, -2, 3, 0.5] } = {}) => attentionRow({ scores, values, sink }, allowed, fill);
  const none = [false, false, false, false];
  const total = Math.exp(1 - 3) + 1;
  const read = row([true, false, true, false]);
  assert.deepEqual(read.weights, [Math.exp(1 - 3) / total, 0, 1 / total, 0]);
  assert.deepEqual([read.masked, read.sum], [[1, null, 3, null], [read.weights[0] + 3 * read.weights[2]]]);
  // A sink is only in the denominator, and a row without keys ignores it.
  assert.deepEqual(row([true, false, true, false], { sink: 3 }).weights, [Math.exp(1 - 3) / (total + 1), 0, 1 / (total + 1), 0]);
  const empty = row(none, { sink: 5 });
  assert.deepEqual([empty.weights, empty.sum, empty.denominator, empty.sink, empty.empty], [[0, 0, 0, 0], [0], 0, 0, true]);
  // A finite number in place of minus infinity: the scores are lost in rounding, and hidden keys are read equally.
  const filled = row(none, { fill: -1e9 });
  assert.deepEqual([filled.weights, filled.sum, filled.empty], [[0.25, 0.25, 0.25, 0.25], [2.5], true]);
  assert.deepEqual(attentionRow({ scores: [0.1], values: [], sink: null }, [false], -3e38).masked, [Math.fround(-3e38)]);
  assert.deepEqual(attentionRow({ scores: [-3e38], values: [] }, [false], -3e38).weights, [1]);
});

test("for every row, the weights are the softmax over the cells of the mask", async () => {
  for (const [mask, shape, facts] of [
    ["sliding(3) | causal & keys(0)", { len: 9 }, {}],
    ["causal & padding", { len: 8 }, { lengths: [5], side: "left" }],
    ["padding", { q: 4, kv: 7, query_offset: 0 }, { lengths: [5] }],
  ]) {
    const page = await site.open({ mask, shape, facts, row: { open: true, from: "typed" }, cell: [0, 0] });
    const cells = await drawn(page);
    for (const [q, allowed] of cells.entries()) {
      await shows(page, q);
      const scores = (await panel(page).getByLabel("Scores, one for each key").inputValue()).split(", ").map(Number);
      assert.equal(scores.length, allowed.length);
      near(await weights(page), softmax(scores, allowed), `${mask}, query ${q}`);
      if (q < cells.length - 1) await panel(page).getByRole("button", { name: "Next query" }).click();
    }
    await panel(page).getByRole("button", { name: "Next query", disabled: true }).waitFor();
    await page.finish();
  }
});

test("for every row of a text, the weights are those of the model", async () => {
  const text = "Jane, call 020 7946 0958 or write.";
  const page = await site.open({ view: "text", text: { text, hide: ["phone"], token: 0, layer: 1, head: 2 } });
  await page.locator(".text-word").first().waitFor({ timeout: 60_000 });
  await page.locator(".text-row > summary").click();
  const expected = await page.evaluate(async (asked) => (await (await import("./js/base/api.js")).text(asked)).attention_tokens,
    { text, hide: ["phone"], layer: 1, head: 2 });
  assert.ok(expected.length > 20 && expected.length <= 64);
  for (const [q, row] of expected.entries()) {
    await shows(page, q);
    near(await weights(page), row, `token ${q}`);
    if (q < expected.length - 1) await panel(page).getByRole("button", { name: "Next query" }).click();
  }
  // A click on a word shows the row of its last token.
  await page.locator(".text-word").first().click();
  await page.waitForFunction((end) => {
    const at = Number(document.querySelector(".text-row .row-query input").value);
    return at < end - 1 && document.querySelector(".text-row .row-panel").dataset.settled?.endsWith(` ${at}`);
  }, expected.length);
  await page.finish();
});

test("a key that is switched off is hidden as by a mask", async () => {
  const page = await site.open({ mask: "causal", shape: { len: 8 }, row: { open: true }, cell: [6, 0] });
  await shows(page, 6);
  assert.match(await panel(page).innerText(), /The numbers come from the model/);
  const all = await weights(page);
  const key = panel(page).getByRole("checkbox", { name: /^Key 2/ });
  await key.focus();
  await page.keyboard.press("Space");
  await panel(page).locator(".row-was").first().waitFor();
  await panel(page).getByRole("checkbox", { name: /^Key 4/ }).click();
  await page.waitForFunction(() => Number(document.querySelector('tr[data-key="4"] td[data-weight]').dataset.weight) === 0);
  const off = await weights(page);
  assert.ok((await panel(page).locator("tr[data-key='0'] .row-was").innerText()).startsWith(all[0].exact.toFixed(4)));
  await panel(page).getByRole("button", { name: "Switch all keys on" }).click();
  await panel(page).locator(".row-was").first().waitFor({ state: "detached" });
  assert.deepEqual(await weights(page), all);
  await say(page, "causal - keys([2, 4])");
  await page.waitForFunction(() => Number(document.querySelector('tr[data-key="2"] td[data-weight]').dataset.weight) === 0);
  assert.deepEqual(await weights(page), off);
  assert.ok(await panel(page).getByRole("checkbox", { name: /^Key 2/ }).isDisabled());
  await page.finish();
});

test("a row that reads nothing is explained, and so is −1e9", async () => {
  const page = await site.open({ mask: "causal & padding", shape: { len: 6 }, facts: { lengths: [4], side: "left" }, row: { open: true }, cell: [1, 0] });
  await shows(page, 1);
  assert.match(await panel(page).locator(".row-told").innerText(), /may read no key.*divide 0 by 0/s);
  assert.ok((await weights(page)).every(({ exact }) => exact === 0));
  await panel(page).getByRole("button", { name: "−1e9 added" }).click();
  await page.waitForFunction(() => Number(document.querySelector("td[data-weight]").dataset.weight) > 0);
  for (const { exact } of await weights(page)) assert.ok(Math.abs(exact - 1 / 6) < 1e-12);
  assert.match(await panel(page).locator(".row-told").innerText(), /so are the weights of all hidden keys/);
  await page.finish();
});

test("typed numbers are used, and wrong ones are marked", async () => {
  const page = await site.open({ mask: "full", shape: { len: 3 }, row: { open: true, from: "typed" }, cell: [1, 0] });
  await shows(page, 1);
  await panel(page).getByLabel("Scores, one for each key").fill("0, 0, 0");
  await page.waitForFunction(() => [...document.querySelectorAll("td[data-weight]")].every((cell) => cell.dataset.weight.startsWith("0.333")));
  await panel(page).getByLabel("Values, one for each key").fill("3, 6, 30");
  await page.waitForFunction(() => Math.abs(JSON.parse(document.querySelector("[data-sum]").dataset.sum)[0] - 13) < 1e-9);
  await panel(page).getByLabel("Scores, one for each key").fill("0, x");
  await panel(page).getByText("“x” is not a finite number.").waitFor();
  await page.finish();
});

test("the steps are walked by keyboard, and the picture is saved", async () => {
  const page = await site.open({ mask: "causal", shape: { len: 7 }, row: { open: true }, cell: [4, 0] });
  await shows(page, 4);
  const seen = () => panel(page).locator("tbody tr").first().locator("td").evaluateAll((cells) =>
    cells.filter((cell) => getComputedStyle(cell).visibility === "visible").length);
  const picture = () => panel(page).locator("svg").evaluate((svg) => svg.querySelectorAll("text").length);
  assert.equal(await seen(), 5);
  await panel(page).getByRole("button", { name: "1. Scores" }).focus();
  await page.keyboard.press("Enter");
  let before = 0;
  for (const step of ["Scores", "Masked scores", "Exponentials", "Weights", "Weighted sum"]) {
    assert.equal(await panel(page).locator(".row-steps [aria-pressed=true]").innerText(), `${await seen()}. ${step}`);
    assert.ok((await picture()) > before);
    before = await picture();
    if (step !== "Weighted sum") {
      await panel(page).getByRole("button", { name: "Next step" }).focus();
      await page.keyboard.press("Enter");
    }
  }
  const saving = page.waitForEvent("download");
  await panel(page).getByRole("button", { name: "Save the picture (SVG)" }).click();
  const download = await saving;
  assert.equal(download.suggestedFilename(), "attention-query-4.svg");
  const saved = readFileSync(await download.path(), "utf8");
  assert.ok(saved.startsWith("<svg") && saved.includes('xmlns="http://www.w3.org/2000/svg"') && saved.includes("−∞"));
  assert.ok(!/var\(|class=|style=|href=/.test(saved), "the picture needs nothing from the page");
  await page.finish();
});

test("the words of the model’s text are on the axes, and long masks are refused", async () => {
  const page = await site.open({ mask: "causal", shape: { len: 64 }, cell: [63, 0] });
  await settled(page);
  await page.getByRole("button", { name: "One row in numbers" }).click();
  await shows(page, 63);
  assert.equal(await panel(page).locator(".row-word").count(), 64);
  await page.getByLabel("Length", { exact: true }).fill("65");
  await page.getByText("A row is shown in numbers for masks of at most 64 keys: this mask has 65.").waitFor();
  await page.getByRole("button", { name: "One row in numbers" }).click();
  assert.equal(await panel(page).count(), 0);
  await page.finish();
});

test("an address that holds nonsense breaks nothing", async () => {
  for (const row of [{ open: true, off: "x", from: 7, scores: [1], values: {} }, { open: true, off: [99, -1, {}], from: "typed", scores: ["a"] }]) {
    const page = await site.open({ mask: "causal", shape: { len: 4 }, row, cell: [900, 900] });
    await shows(page, 3);
    await page.finish();
  }
});

for (const width of [1440, 390]) {
  test(`axe: a row in numbers, ${width}`, async () => {
    const size = { width, height: 844 };
    for (const from of ["model", "typed"]) {
      const row = { open: true, from, off: [2] };
      const page = await site.open({ mask: "causal & padding", shape: { len: 20 }, facts: { lengths: [16] }, row, cell: [18, 1] }, size);
      await shows(page, 18);
      assert.deepEqual(await themed(page), []);
      assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= width);
      await page.finish();
    }
    const page = await site.open({ view: "text", text: { text: "Call 020 7946 0958.", hide: ["phone"] } }, size);
    await page.locator(".text-word").first().waitFor({ timeout: 60_000 });
    await page.locator(".text-row > summary").click();
    await panel(page).locator("td[data-weight]").first().waitFor();
    assert.deepEqual(await themed(page), []);
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= width);
    await page.finish();
  });
}
