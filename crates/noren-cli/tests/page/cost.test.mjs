// The cost view: the cost of a mask, and its growth with length.

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

test("the plot shows the values at the pointer, the table all values", async () => {
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

test("after an invalid mask, the last figures stay", async () => {
  const page = await site.open({ view: "cost", mask: "causal", shape: { len: 64 } });
  await page.locator(".figure-value").first().waitFor();
  await say(page, "causal & slidin(3)");
  await page.locator(".editor-error .says", { hasText: "slidin" }).waitFor();
  assert.equal((await figures(page))[0], "2,080");
  await page.finish();
});

test("values that the server did not count are not shown as counted", async () => {
  const page = await site.open();
  const uncounted = ["allowed", "density", "computed_per_allowed", "empty_rows", "full_tiles", "mixed_tiles", "empty_tiles"];
  await page.route("**/cost", async (route) => {
    const cost = await (await route.fetch()).json();
    for (const key of uncounted) delete cost[key];
    await route.fulfill({ json: { ...cost, exact: false, cells: "1000000", allowed_low: "100000", allowed_high: "250000" } });
  });
  await page.route("**/curve", async (route) => {
    const curve = await (await route.fetch()).json();
    await route.fulfill({ json: { ...curve, points: curve.points.map((point) => ({ ...point, allowed: null })) } });
  });
  await say(page, "causal & sliding(7)");
  await page.locator(".figures-line", { hasText: "between 100,000 and 250,000 allowed, between 10 % and 25 %" }).waitFor();
  await page.getByRole("navigation").getByText("Cost").press("Enter");
  await page.locator(".plot").nth(1).waitFor();
  const shown = await page.locator(".cost-figures").innerText();
  assert.match(shown, /between 100 k and 250 k[\s\S]*between 10 % and 25 % of 1 M/);
  assert.match(shown, /allowed cells were not counted/);
  assert.match(await page.locator(".cost-tiles").innerText(), /tiles were not counted/);
  await page.getByText("The numbers").click();
  assert.equal(await page.locator("table.figures tbody tr:first-child td").first().innerText(), "not counted");
  assert.doesNotMatch(await page.locator(".bill").innerText(), /NaN|undefined|nothing is allowed/);
  await page.finish();
});
