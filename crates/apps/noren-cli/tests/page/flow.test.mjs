// The flow view: the tokens that a token reaches, policies, and the paths that break them.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { themed, violations } from "./axe.mjs";
import { explorer } from "./explorer.mjs";
import { flowCommand } from "../../../noren-explorer/page/js/base/command.js";
import { settings } from "../../../noren-explorer/page/js/flow/settings.js";
import { changing, count, counts, has, holds, inWords, shared, waypoints } from "../../../noren-explorer/page/js/flow/sets.js";

let site;
before(async () => (site = await explorer()));
after(() => site?.close());

const open = (flow, { len = 20, facts = {}, ...options } = {}) => site.open({ view: "flow", shape: { len }, facts, flow }, options);

/** Waits for a sentence in the summary. */
const shown = (page, sentence) =>
  page.waitForFunction((wanted) => document.querySelector(".flow-summary").textContent.includes(wanted), sentence, { timeout: 60_000 });

/** Waits for a verdict on the policy. */
const verdict = (page, words) =>
  page.waitForFunction((wanted) => document.querySelector(".flow-verdict").textContent.startsWith(wanted), words, { timeout: 60_000 });

/** Returns the colour of the picture at a token and a level. */
const inkAt = (page, token, level) => page.evaluate(([at, up]) => {
  const { picture } = document.querySelector(".flow-stage");
  picture.draw();
  const pixel = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  pixel.drawImage(picture.canvas, -Math.round(picture.x(at)), -Math.round(picture.y(up)));
  return [...pixel.getImageData(0, 0, 1, 1).data.slice(0, 3)];
}, [token, level]);

const BACK = [0x2f, 0x4b, 0x8f];
const REACH = [0xd0, 0x8a, 0x1d];
const WARN = [0xb8, 0x44, 0x2e];

/** Clicks a token in the picture. */
async function click(page, token) {
  const place = await page.evaluate((at) => {
    const { picture } = document.querySelector(".flow-stage");
    const box = picture.canvas.getBoundingClientRect();
    return { x: box.left + picture.x(at), y: box.top + box.height / 2 };
  }, token);
  await page.mouse.click(place.x, place.y);
}

test("sets of tokens", () => {
  const set = [[2, 5], [9, 10], [20, 30]];
  assert.equal(count(set), 14);
  assert.deepEqual([1, 2, 4, 5, 9, 10, 29, 30].map((token) => has(set, token)), [false, true, true, false, true, false, true, false]);
  assert.equal(inWords(set), "2..5, 9, 20..30");
  assert.equal(inWords(set, 2), "2..5, 9, … (3 ranges)");
  assert.equal(inWords([]), "none");
  assert.deepEqual(shared(set, [[0, 3], [4, 22], [29, 99]]), [[2, 3], [4, 5], [9, 10], [20, 22], [29, 30]]);
  assert.deepEqual(shared(set, []), []);
  assert.equal(changing([[[0, 1]], [[0, 3]], [[0, 4]], [[0, 4]], [[0, 4]]]), 3);
});

test("sets whose ranges were left out are counted as a whole", () => {
  const set = [[0, 1], [2, 3]]; // the first two of a hundred
  assert.deepEqual(counts([[[4, 9]], set], [5, 100]), [5, 100]);
  assert.deepEqual(counts([[[4, 9]], set]), [5, 2]);
  assert.equal(inWords(set, 4, 100), "0, 2, … (more than 2 ranges)");
  assert.deepEqual([0, 1, 2, 3, 40].map((token) => holds(set, token, 100)), [true, false, true, null, null]);
  assert.deepEqual([1, 40].map((token) => holds(set, token, 2)), [false, false]);
  assert.equal(changing([set, set, set], [2, 90, 90]), 2);
});

test("given settings are not replaced", () => {
  const state = { flow: { layers: Array(65).fill("sliding(2)"), depth: 600 }, mask: "causal", shape: { batch: 2 }, at: [3, 0] };
  const set = settings(state);
  assert.deepEqual([set.layers.length, set.layers[64], set.depth], [65, "sliding(2)", 600]);
  assert.equal(set.batch, 1); // a batch row of an earlier shape
});

test("a path stays in its token until the token is read", () => {
  const points = waypoints({ source: 2, steps: [[1, 5], [2, 7]] }, 5);
  assert.deepEqual(points.map(({ level, token, stop }) => `${token}@${level}${stop ? "!" : ""}`), ["2@0!", "2@1", "5@2!", "7@3!", "7@5"]);
});

test("the view as a command", () => {
  const policy = "# it's\ndeny: token(2) -> token(7)\nallow: all -> token(1)";
  const set = { layers: ["sliding(4)", "causal - keys(label=\"pii\")"], depth: 6, fill: "nothing", policy, token: 3 };
  assert.equal(flowCommand(set, { shape: { len: 8 }, facts: {} }),
    "noren flow 'sliding(4)' 'causal - keys(label=\"pii\")' --layers 6 --len 8 --token 3 " +
      "--deny 'token(2) -> token(7)' --allow 'all -> token(1)'");
  const line = flowCommand({ ...set, fill: "finite" }, { shape: {}, facts: { lengths: [3] } });
  assert.match(line, / --fill finite .* --facts <\(echo '\{"lengths":\[3\]\}'\)$/);
});

test("the receptive field grows with the layers", async () => {
  const page = await open({ layers: ["sliding(3)"], depth: 4, token: 19 });
  await shown(page, "After 4 layers token 19 depends on 9 of 20 inputs (11..20) and reaches 1 output (19).");
  await page.locator(".flow-stack input[type=number]").fill("2");
  await shown(page, "After 2 layers token 19 depends on 5 of 20 inputs (15..20)");
  await page.locator(".flow-notes summary").first().click();
  const sets = await page.locator(".flow-table tbody tr").evaluateAll((rows) => rows.map((row) => row.cells[2].textContent));
  assert.deepEqual(sets, ["19", "17..20", "15..20"]);
  await page.finish();
});

test("a token is chosen by a click, by keys, by its number", async () => {
  const page = await open({ layers: ["sliding(2)"], depth: 3, token: 10 });
  await shown(page, "token 10 depends on 4 of 20 inputs (7..11) and reaches 4 outputs (10..14).");
  assert.deepEqual([await inkAt(page, 8, 0), await inkAt(page, 13, 3)], [BACK, REACH]);
  await click(page, 5);
  await shown(page, "token 5 depends on 4 of 20 inputs (2..6)");
  await page.locator(".flow-stage").focus();
  for (const key of ["ArrowRight", "ArrowRight", "ArrowLeft"]) await page.keyboard.press(key);
  await shown(page, "token 6 depends on");
  assert.equal(await page.locator(".flow-stage").getAttribute("aria-valuenow"), "6");
  await page.keyboard.press("End");
  await shown(page, "token 19 depends on");
  await page.getByLabel("Token", { exact: true }).first().fill("3");
  await shown(page, "token 3 depends on 4 of 20 inputs (0..4)");
  await page.waitForFunction(() => location.hash.includes("'token':3"));
  await page.getByRole("button", { name: "Tokens it reaches" }).click();
  await page.waitForFunction(() => location.hash.includes("'directions':'reach'"));
  assert.notDeepEqual(await inkAt(page, 1, 0), BACK);
  await page.finish();
});

test("a leak is followed", async () => {
  const page = await open({ layers: ["causal - (queries(7) & keys(2))"], depth: 6, token: 4 }, { len: 8 });
  await verdict(page, "There is no rule, so nothing is denied");
  const rules = page.getByLabel("Denied pairs of tokens, one rule per line");
  await rules.fill("deny: token(2) -> token(7)");
  await verdict(page, "The policy is broken: a source token influences its target token in 1 of 1 denied pair");
  const row = page.locator(".flow-violation");
  assert.match(await row.innerText(), /token 2 → token 3 in layer 0 → token 7 in layer 1/);
  assert.match(await row.innerText(), /It is not enough to deny cells in a single layer/);
  await row.click();
  await shown(page, "token 7 depends on");
  assert.equal(await row.getAttribute("aria-pressed"), "true");
  for (const [token, level] of [[2, 0], [3, 1], [7, 2]]) assert.deepEqual(await inkAt(page, token, level), WARN, `${token} at ${level}`);
  await page.waitForFunction(() => location.hash.includes("'violation':0"));
  // With key 2 hidden from all other tokens, no path is left.
  await page.locator(".flow-layer textarea").fill("causal - (keys(2) - queries(2))");
  await verdict(page, "The policy holds: no source token influences its target token in 1 denied pair");
  await row.waitFor({ state: "detached" });
  assert.notDeepEqual(await inkAt(page, 3, 1), WARN);
  await page.finish();
});

test("a link brings a leak back", async () => {
  const flow = { layers: ["documents | global(0)"], depth: 4, policy: "deny: document(1) -> document(3)", violation: 0 };
  const page = await open(flow, { len: 24, facts: { documents: [[1, 8, 8, 7]] } });
  await verdict(page, "The policy is broken");
  assert.deepEqual(await inkAt(page, 0, 1), WARN);
  assert.deepEqual(await violations(page), []);
  await page.finish();
});

test("invalid rules are reported by line", async () => {
  const page = await open({ layers: ["causal"], depth: 2, policy: "# one\ndeny: pii to output" });
  await verdict(page, "The rules cannot be read");
  const wrong = page.locator(".flow-policy .wrong");
  assert.match(await wrong.innerText(), /^Line 2: /);
  assert.equal(await page.locator(".flow-rules").getAttribute("aria-invalid"), "true");
  assert.doesNotMatch(await page.locator(".flow-policy").innerText(), /policy holds|policy is broken/);
  await page.finish();
});

test("masks alternate, are added, moved and removed", async () => {
  const page = await open({ layers: ["sliding(2)"], depth: 2, token: 19 });
  await shown(page, "depends on 3 of 20");
  await page.getByRole("button", { name: "Add a mask" }).click();
  const second = page.locator(".flow-layer").nth(1).locator("textarea");
  await second.fill("causal");
  await shown(page, "depends on 20 of 20");
  await page.getByRole("button", { name: "Move up: mask 1" }).click();
  await page.waitForFunction(() => location.hash.includes("['causal','sliding(2)']"));
  await page.getByRole("button", { name: "Remove: mask 0" }).click();
  await shown(page, "depends on 3 of 20");
  await page.finish();
});

test("an invalid mask is marked in its row, and the last picture stays", async () => {
  const page = await open({ layers: ["causal", "sliding(2)"], depth: 2, token: 9 });
  await shown(page, "token 9 depends on");
  await page.locator(".flow-layer").nth(1).locator("textarea").fill("slidin(2)");
  await page.locator(".flow-layer").nth(1).locator(".editor-error").waitFor();
  assert.equal(await page.locator(".flow-layer").nth(0).locator("textarea").getAttribute("aria-invalid"), "false");
  await page.locator(".flow-layer").nth(1).locator("textarea").fill("sliding(3)");
  await page.locator(".flow.stale").waitFor({ state: "detached" });
  await page.finish();
});

test("65,536 tokens are moved through and zoomed", async () => {
  const layers = [...Array(5).fill("sliding(1024)"), "causal & stride(4096)"];
  const page = await open({ layers, depth: 24, token: 40000 }, { len: 65536 });
  await shown(page, "token 40,000 depends on");
  await page.locator(".flow-stage").focus();
  await page.keyboard.press("ArrowRight");
  await shown(page, "token 40,001 depends on");
  await page.keyboard.press("+");
  await page.waitForFunction(() => location.hash.includes("'window':["));
  await page.keyboard.press("0");
  await page.waitForFunction(() => !location.hash.includes("'window':["));
  await page.finish();
});

test("an address that holds nonsense breaks nothing", async () => {
  for (const flow of [
    { layers: 5, depth: "x", token: -1, policy: 7, violation: "a", window: ["", 1], directions: 3, fill: {} },
    { layers: [], depth: 1.5, token: 1e300, violation: 99 },
  ]) {
    const page = await open(flow, { len: 12 });
    await shown(page, "After 4 layers token");
    await page.finish();
  }
});

test("a stack of too many layers is refused, not replaced", async () => {
  const page = await open({ layers: ["causal"], depth: 600 }, { len: 12 });
  await page.locator(".flow-picture .notice.bad", { hasText: "at most 512 layers" }).waitFor();
  await page.locator(".flow-stack input[type=number]").fill("3");
  await shown(page, "After 3 layers token");
  await page.finish();
});

test("sets of very many ranges are counted completely, and the picture reports missing ranges", async () => {
  const page = await open({ layers: ["causal & stride(2)"], depth: 2, token: 16383 }, { len: 16384 });
  await shown(page, "token 16,383 depends on 8,192 of 16,384 inputs (1, 3, 5, … (more than 4096 ranges))");
  assert.match(await page.locator(".flow-lacks").innerText(), /The picture is incomplete/);
  await page.getByLabel("Token", { exact: true }).first().fill("7");
  await shown(page, "token 7 depends on 4 of 16,384 inputs (1, 3, 5, … (4 ranges))");
  await page.finish();
});

test("a batch row of an earlier mask is not requested", async () => {
  const page = await site.open({ view: "flow", shape: { len: 12 }, flow: { layers: ["causal"], depth: 2 }, at: [3, 0] });
  await shown(page, "After 2 layers token");
  assert.equal(await page.locator(".flow-picture .notice.bad").isVisible(), false);
  await page.locator(".flow-presets button").first().click();
  await page.waitForFunction(() => !location.hash.includes("at:") && !location.hash.includes("'at'"));
  await page.finish();
});

test("a certificate that the server refuses is reported", async () => {
  const page = await open({ layers: ["causal"], depth: 2, policy: "deny: token(0) -> token(9)" });
  await verdict(page, "The policy is broken");
  await page.route("**/flow/certificate", (route) => route.fulfill({ status: 200, headers: { "X-Noren-Status": "400" }, body: '{"error": {"message": "no certificate"}}' }));
  await page.getByRole("button", { name: "Download certificate" }).click();
  await page.locator(".toast.error", { hasText: "no certificate" }).waitFor();
  await page.finish();
});

test("every example stack works", async () => {
  const page = await open({ layers: ["causal"], depth: 2 });
  await page.locator(".flow-presets button").first().waitFor();
  for (const button of await page.locator(".flow-presets button").all()) {
    await button.click();
    await page.waitForFunction(() => !document.querySelector(".flow-stage").hasAttribute("aria-busy"));
    await page.waitForTimeout(150);
    assert.equal(await page.locator(".flow-picture .notice.bad").isVisible(), false, await button.innerText());
  }
  await page.finish();
});

test("axe: a policy that is broken, everything open", async () => {
  const flow = { layers: ["causal", "sliding(3)"], depth: 4, policy: "deny: label(pii) -> output", violation: 0 };
  const page = await open(flow, { facts: { labels: { pii: [3] } } });
  await verdict(page, "The policy is broken");
  await page.locator("details").evaluateAll((folds) => folds.forEach((fold) => (fold.open = true)));
  assert.deepEqual(await themed(page), []);
  await page.finish();
});
