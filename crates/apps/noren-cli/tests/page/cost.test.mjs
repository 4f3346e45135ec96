// The cost view: the cost of a mask, and its growth with length.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { reasonOf } from "../../../noren-explorer/page/js/cost/crossing.js";
import { explorer, say } from "./explorer.mjs";

let site;
before(async () => (site = await explorer()));
after(() => site?.close());

const figures = (page) => page.locator(".figure-value").allTextContents();

test("cells, plan, tiles and time of a mask", async () => {
  const page = await site.open({ view: "cost", mask: "causal", shape: { len: 1024, heads: 2 }, cost: { len: 1024 } });
  await page.locator(".plot").nth(1).waitFor();
  const [allowed, , plan, time] = await figures(page);
  assert.equal(allowed, "1.05 M"); // 2 heads of 1024 * 1025 / 2
  assert.match(plan, /^[\d.]+ (B|KiB)$/);
  assert.match(time, /^[\d.]+ (µs|ms|s)$/);
  assert.match(await page.locator(".cost-figures").innerText(), /a dense mask: 1 MiB|a dense mask: 2 MiB/);
  assert.match(await page.locator(".tile-kinds").innerText(), /full[\s\S]*mixed[\s\S]*empty/);
  assert.match(await page.locator(".cost-tiles").innerText(), /head_dim 64, f32, 1 batch row and 2 heads on this machine: \S+/);
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
  assert.equal(await rows.count(), 16); // 2^5 to 2^20
  assert.match(await rows.last().innerText(), /1,048,576/);
  await page.finish();
});

test("after an invalid mask, the last figures stay", async () => {
  const page = await site.open({ view: "cost", mask: "causal", shape: { len: 64 }, cost: { len: 64 } });
  await page.locator(".figure-value").first().waitFor();
  await say(page, "causal & slidin(3)");
  await page.locator(".editor-error .says", { hasText: "slidin" }).waitFor();
  assert.equal((await figures(page))[0], "2,080");
  await page.finish();
});

test("values that the server did not count are not shown as counted", async () => {
  const page = await site.open({ mask: "causal", shape: { len: 24 }, cost: { len: 24 } });
  const uncounted = ["allowed", "density", "computed_per_allowed", "empty_rows", "full_tiles", "mixed_tiles", "empty_tiles"];
  await page.route("**/cost*", async (route) => {
    const cost = await (await route.fetch()).json();
    for (const key of uncounted) delete cost[key];
    await route.fulfill({ json: { ...cost, exact: false, cells: "1000000", allowed_low: "100000", allowed_high: "250000" } });
  });
  await page.route("**/curve*", async (route) => {
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

test("the view opens at a length that matters, with the crossover and the reason below it", async () => {
  const page = await site.open({ view: "cost", mask: "causal & sliding(16)", shape: { len: 24 } });
  await page.locator(".plot").nth(1).waitFor();
  const verdict = page.locator(".cost-verdict");
  const length = page.getByLabel("At", { exact: true });
  assert.ok(Number(await length.inputValue()) >= 4096, await length.inputValue());
  assert.match(await verdict.innerText(), /cheaper than dense masking[\s\S]*At [\d,]+ tokens it is [\d.,]+( k)?× as fast: [\d.e-]+ % of the cells are computed\./);
  assert.match(await page.locator(".cost-tiles").innerText(), /the mask has 24 tokens/);
  await page.getByRole("button", { name: "Show 24 tokens" }).click();
  await page.locator(".tile-kinds").waitFor();
  assert.equal(await length.inputValue(), "24");
  await page.goBack();
  await page.locator(".cost-tiles", { hasText: "the mask has 24 tokens" }).waitFor();
  // everything is allowed: a plan saves nothing, and the reason is given
  await say(page, "full");
  await verdict.getByText(/Reason: the mask allows nearly everything, so that 100 % of the cells are computed and nothing is saved/).waitFor();
  // a mask smaller than a tile hides cells, but no tile: another reason
  await say(page, "causal");
  await page.getByRole("button", { name: "Show 24 tokens" }).click();
  await verdict.getByText(/Reason: nearly every tile has an allowed cell, so that 100 % of the cells are computed and nothing is saved/).waitFor();
  await page.finish();
});

test("the reason names saved cells only where cells are skipped", () => {
  const dense = { cells: "576", dense_seconds: 1e-5, planning_seconds: 2e-6, mixed_share: 1, mixed_cost: 1 };
  const reason = (point) => reasonOf({ ...dense, ...point });
  // the sum of both times is rounded: less the planning, the kernel's time is below the time of dense masking
  const rounded = { computed: "576", seconds: 1e-5 + 2e-6 - 1e-18 };
  assert.ok(rounded.seconds - dense.planning_seconds < dense.dense_seconds);
  assert.match(reason({ ...rounded, allowed: "300" }), /Reason: nearly every tile has an allowed cell, so that 100 % of the cells are computed and nothing is saved\./);
  assert.match(reason({ ...rounded, allowed: "576" }), /Reason: the mask allows nearly everything, .* nothing is saved\./);
  assert.match(reason({ ...rounded, allowed: null }), /Reason: nearly every tile has an allowed cell, /);
  assert.match(reason({ computed: "560", seconds: 1.1e-5, allowed: "300" }), /97\.?\d* % of the cells are computed and little is saved\./);
  assert.match(reason({ computed: "288", seconds: 1.1e-5, allowed: "200" }), /Reason: planning takes .*, and the skipped cells save only /);
  assert.match(reason({ computed: "288", seconds: 1.5e-5, allowed: "200", mixed_cost: 3 }), /Reason: 100 % of the computed cells are in tiles with both allowed and hidden cells/);
});

test("head_dim and dtype are chosen, and are measured", async () => {
  const page = await site.open({ view: "cost", mask: "causal", shape: { len: 4096 } });
  await page.locator(".plot").nth(1).waitFor();
  await page.getByLabel("head_dim").selectOption("128");
  await page.locator(".cost-tiles", { hasText: "head_dim 128, f32" }).waitFor();
  await page.getByLabel("dtype").selectOption("bf16");
  await page.locator(".cost-tiles", { hasText: "head_dim 128, bf16" }).waitFor();
  await page.waitForFunction(() => location.hash.includes("'head_dim':128") && location.hash.includes("'dtype':'bf16'"));
  await page.reload();
  await page.locator(".cost-tiles", { hasText: "head_dim 128, bf16" }).waitFor();
  await page.finish();
});
