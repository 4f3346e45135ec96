// Comparison of two masks: their differences are counted, drawn and jumped to.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { explorer, say, settled } from "./explorer.mjs";

let site;
before(async () => (site = await explorer()));
after(() => site?.close());

const bits = (page, q, k) =>
  page.evaluate(([row, key]) => (document.querySelector(".picture").picture.cell(row, key)?.byte >> 4) & 3, [q, k]);

test("a second mask is compared cell by cell", async () => {
  const page = await site.open({ shape: { len: 12 }, mask: "sliding(4)" });
  await settled(page);
  await page.getByRole("button", { name: "Compare with another mask" }).click();
  await page.getByText("The same cells.").waitFor();
  await say(page, "sliding(5) - keys(0)", "Mask compared with");
  const shown = page.locator(".difference");
  await shown.getByText("4 allowed only by the first mask").waitFor(); // an unfinished text is also compared
  assert.match(await shown.innerText(), /4 allowed only by the first mask/);
  assert.match(await shown.innerText(), /7 allowed only by the second mask/);
  await settled(page);
  await page.waitForFunction(() => ((document.querySelector(".picture").picture.cell(5, 1)?.byte >> 4) & 3) === 2);
  assert.deepEqual([await bits(page, 0, 0), await bits(page, 5, 5)], [1, 0]);
  await page.getByRole("button", { name: "First difference" }).click();
  await page.locator(".why").getByText("The other mask denies this cell.").waitFor();
  assert.match(await page.locator(".why-cell").innerText(), /query 0 → key 0/);
  await page.finish();
});

test("pictures side by side move together", async () => {
  const page = await site.open({ shape: { len: 4096 }, mask: "causal", other: "chunk(1024)", sides: true });
  await settled(page);
  await settled(page, ".picture-frame:nth-of-type(2) .picture");
  const cell = (which, q, k) =>
    page.evaluate(([i, row, key]) => document.querySelectorAll(".picture")[i].picture.cell(row, key)?.byte & 3, [which, q, k]);
  assert.deepEqual([await cell(0, 4000, 10), await cell(1, 4000, 10)], [2, 0]);
  await page.locator(".picture").first().focus();
  for (const key of ["+", "+", "+"]) await page.keyboard.press(key);
  const places = () =>
    page.evaluate(() =>
      [...document.querySelectorAll(".picture")].map(({ picture }) => JSON.stringify(picture.camera.place?.map(Math.round))),
    );
  await page.waitForFunction(() => document.querySelectorAll(".picture")[1].picture.camera.place !== null);
  const [first, second] = await places();
  assert.equal(first, second);
  await page.getByRole("button", { name: "Swap" }).click();
  await page.waitForFunction(() => document.querySelector("textarea").value === "chunk(1024)");
  await page.getByRole("button", { name: "End" }).click();
  await page.locator(".comparison").waitFor({ state: "hidden" });
  await page.finish();
});

test("a text with an error is not compared", async () => {
  const page = await site.open({ shape: { len: 8 }, mask: "causal", other: "sliding(3)" });
  const shown = page.locator(".comparison");
  await shown.getByText("allowed only by the first mask").waitFor();
  await say(page, "slidin(3)", "Mask compared with");
  await shown.getByText("The second mask text has an error. The comparison uses the last mask text without an error.").waitFor();
  await page.getByRole("button", { name: "Export", disabled: true }).waitFor();
  await say(page, "causal", "Mask compared with");
  await shown.getByText("The same cells.").waitFor();
  assert.doesNotMatch(await shown.innerText(), /has an error/);
  await say(page, "causl");
  await shown.getByText("The first mask text has an error.").waitFor();
  await page.getByRole("button", { name: "Export", disabled: true }).waitFor();
  await page.finish();
});
