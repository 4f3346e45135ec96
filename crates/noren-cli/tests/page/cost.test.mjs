// The cost view: figures of a mask, and how they grow.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { explorer, say } from "./explorer.mjs";

let site;
before(async () => (site = await explorer()));
after(() => site?.close());

const figures = (page) => page.locator(".figure-value").allTextContents();

test("cells, plan, tiles and time of a mask", async () => {
  const page = await site.open({ view: "cost", mask: "causal", shape: { len: 1024, heads: 2 } });
  await page.locator(".plot").nth(1).waitFor();
  const [allowed, , plan, time] = await figures(page);
  assert.equal(allowed, "1.05 M"); // 2 heads of 1024 * 1025 / 2
  assert.match(plan, /^[\d.]+ (B|KiB)$/);
  assert.match(time, /^[\d.]+ (µs|ms|s)$/);
  assert.match(await page.locator(".cost-figures").innerText(), /a dense mask: 1 MiB|a dense mask: 2 MiB/);
  assert.match(await page.locator(".tile-kinds").innerText(), /full[\s\S]*mixed[\s\S]*empty/);
  assert.match(await page.locator(".cost-tiles").innerText(), /head_dim 64, 1 batch row and 2 heads on this machine: \S+/);
  await say(page, "sliding(2)");
  await page.waitForFunction(() => document.querySelector(".figure-value").textContent === "4,094"); // 2 * (1024 + 1023)
  await page.finish();
});

test("the plot tells values where one points, the table all of them", async () => {
  const page = await site.open({ view: "cost", mask: "sliding(4096) | causal & keys(0..4)", shape: { len: 65_536 } });
  const memory = page.locator(".plot", { hasText: "Memory of the mask" });
  await memory.waitFor();
  assert.match(await memory.locator(".plot-legend").innerText(), /tokens 64k[\s\S]*dense 4 GiB/);
  const box = await memory.locator("svg").boundingBox();
  await page.mouse.move(box.x + box.width - 12, box.y + box.height / 2);
  await memory.locator(".plot-at", { hasText: "tokens 1M" }).waitFor();
  assert.match(await memory.locator(".plot-legend").innerText(), /dense 1 TiB/);
  await page.getByText("The numbers").click();
  const rows = page.locator("table.figures tbody tr");
  assert.equal(await rows.count(), 13); // 2^8 to 2^20
  assert.match(await rows.last().innerText(), /1,048,576/);
  await page.finish();
});

test("a mask that is wrong leaves the last figures", async () => {
  const page = await site.open({ view: "cost", mask: "causal", shape: { len: 64 } });
  await page.locator(".figure-value").first().waitFor();
  await say(page, "causal & slidin(3)");
  await page.locator(".editor-error .says", { hasText: "slidin" }).waitFor();
  assert.equal((await figures(page))[0], "2,080");
  await page.finish();
});
