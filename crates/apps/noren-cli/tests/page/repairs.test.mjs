// Errors that act: every error that the page can show opens its control, and its repairs of one click lead to a picture.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { explorer, rests, root, say, settled } from "./explorer.mjs";

const { CAUSES } = await import(join(root, "crates/apps/noren-explorer/page/js/base/causes.js"));
const { bools, npy } = await import("./doctor-files.mjs");

let site;
before(async () => (site = await explorer()));
after(() => site?.close());

/** Words of the command line and of Rust, which are no words of the page. */
const FOREIGN = /(^|\s)--?[a-z]|::|Facts|Mask::|\bq_len\b|\bkv_len\b/;

const error = (page) => page.locator(".editor-error:visible, .notice.bad:visible, .flow-policy .wrong:visible, .picture-error:visible").first();

/** The view is whole: no error, and the picture of the view. */
async function shows(page, view) {
  await page.waitForFunction(() => document.querySelectorAll(".editor-error:not([hidden]), .notice.bad:not([hidden]), .flow-policy .wrong:not([hidden])").length === 0);
  if (view === "mask") return settled(page);
  if (view === "flow") return page.locator(".flow-summary", { hasText: "After" }).waitFor();
  return page.locator(".text-words, .text-read").first().waitFor();
}

for (const [cause, { control, example }] of Object.entries(CAUSES)) {
  if (!example) continue;
  const view = example.view ?? "mask";
  test(`${cause}: the control opens, and each repair leads to a picture`, async () => {
    const page = await site.open(example);
    await error(page).waitFor();
    const words = await error(page).innerText();
    assert.doesNotMatch(words, FOREIGN, words);
    const opener = error(page).locator(".repair.opens");
    const opens = await opener.getAttribute("data-opens");
    if (typeof control === "string") assert.equal(opens, control);
    await page.evaluate(() => document.activeElement.blur());
    await opener.click();
    const focused = await page.evaluate(() => {
      const at = document.activeElement;
      const box = at.getBoundingClientRect();
      const folds = [];
      for (let up = at.parentElement; up; up = up.parentElement) if (up.matches("details")) folds.push(up.open);
      return { tag: at.tagName, control: at.dataset.control ?? null, label: at.getAttribute("aria-label"), id: at.id, seen: box.width > 0 && box.height > 0, folds };
    });
    assert.ok(["INPUT", "TEXTAREA", "BUTTON"].includes(focused.tag) && focused.seen && focused.folds.every(Boolean), `${cause}: ${JSON.stringify(focused)}`);
    if (focused.control !== null) assert.equal(focused.control, opens);
    const titles = await error(page).locator(".repair:not(.opens)").allInnerTexts();
    assert.ok(titles.length > 0, `${cause} has no repair`);
    for (const [at, title] of titles.entries()) {
      const again = at === 0 ? page : await site.open(example);
      await error(again).waitFor();
      await error(again).getByRole("button", { name: title, exact: true }).click();
      await shows(again, view).catch(async (problem) => assert.fail(`${cause}, ${title}: ${await error(again).innerText().catch(() => problem.message)}`));
      await again.finish();
    }
  });
}

test("the page and the server have the same list of causes", () => {
  const source = readFileSync(join(root, "crates/apps/noren-explorer/src/request/cause.rs"), "utf8");
  const body = /enum Cause \{([\s\S]*?)\n\}/.exec(source)[1];
  const listed = [...body.matchAll(/^ {4}([A-Z]\w+),/gm)].map(([, name]) => name.replace(/\B([A-Z])/g, "-$1").toLowerCase());
  assert.ok(listed.length > 30);
  assert.deepEqual(listed.filter((name) => !CAUSES[name]), []);
});

/** Answers requests to `path` with an error until `end()` is called. */
async function failing(page, path, status) {
  await page.route(path, (route) =>
    status === 0
      ? route.abort()
      : route.fulfill({ headers: { "X-Noren-Status": String(status) }, json: { error: { message: "the worker process ended with exit code 3" } } }));
  return () => page.unroute(path);
}

for (const [cause, { provoke, control }] of Object.entries(CAUSES)) {
  if (!Number.isInteger(provoke)) continue;
  test(`${cause}: after an error of the server, the control opens and each repair leads to a picture`, async () => {
    const page = await site.open({ mask: "causal", shape: { len: 2048 } });
    await settled(page);
    const fail = async (mask) => {
      const end = await failing(page, "**/api/masks", provoke);
      await say(page, mask);
      await error(page).getByRole("button", { name: "try again" }).waitFor({ timeout: 60_000 });
      assert.doesNotMatch(await error(page).innerText(), FOREIGN);
      return end;
    };
    let end = await fail("causal & sliding(3)");
    const opener = error(page).locator(".repair.opens");
    if (control === "again") assert.equal(await opener.count(), 0, "trying again is the control");
    else {
      await opener.click();
      assert.equal(await page.evaluate(() => document.activeElement.dataset.control), control);
    }
    const titles = await error(page).locator(".repair:not(.opens)").allInnerTexts();
    assert.ok(titles.includes("try again"));
    for (const [at, title] of titles.entries()) {
      if (at > 0) end = await fail(`causal & sliding(${at + 3})`);
      await end();
      await error(page).getByRole("button", { name: title, exact: true }).click();
      await shows(page, "mask");
      await page.waitForFunction(() => document.querySelector(".picture").picture.cell(9, 2)?.byte === 0);
    }
    page.problems.splice(0, page.problems.length, ...page.problems.filter((problem) => !/net::ERR_FAILED/.test(problem)));
    await page.finish();
  });
}

/** The causes that have their own test below. */
const TESTED = ["row", "export"];

test("every cause has a test", () => {
  const untested = Object.entries(CAUSES).filter(([, { example, provoke }]) => !example && !Number.isInteger(provoke) && !TESTED.includes(provoke));
  assert.deepEqual(untested.map(([cause]) => cause), []);
});

/** The errors that are about the text of a mask or its facts, and not about the shape alone. */
const OF_TEXT = Object.entries(CAUSES).filter(([cause, { example }]) =>
  example && !example.view && (/^needs-(?!offset)|-text$|-missing$/.test(cause) || ["syntax", "parameters", "text-too-long"].includes(cause)));

for (const [cause, { example }] of OF_TEXT) {
  test(`${cause}: the control opens and the first repair leads to figures in the cost view, and to a comparison of two masks`, async () => {
    const act = async (state) => {
      const page = await site.open(state);
      await error(page).waitFor();
      const opener = error(page).locator(".repair.opens");
      await page.evaluate(() => document.activeElement.blur());
      await opener.click();
      assert.ok(await page.evaluate(() => document.activeElement.matches("input, textarea, button")), cause);
      await error(page).locator(".repair:not(.opens)").first().click();
      await page.waitForFunction(() => document.querySelectorAll(".editor-error:not([hidden])").length === 0);
      return page;
    };
    const cost = await act({ ...example, view: "cost" });
    await cost.locator(".figure-value").first().waitFor();
    await cost.locator(".cost-verdict", { hasText: "dense mask" }).waitFor();
    await cost.finish();
    const page = await act({ ...example, mask: "full", other: example.mask });
    await page.locator(".difference").getByText(/only by the (first|second) mask|The same cells|The sizes differ/).first().waitFor();
    await settled(page);
    await page.finish();
  });
}

test("row-too-long: the length opens, and a click shortens the mask", async () => {
  const page = await site.open({ mask: "causal", shape: { len: 200 }, cell: [5, 1], row: { open: true } });
  const repairs = page.locator(".row-section > .repairs");
  await repairs.getByRole("button", { name: "Change the length" }).click();
  assert.equal(await page.evaluate(() => document.activeElement.dataset.control), "len");
  await repairs.getByRole("button", { name: "length 64" }).click();
  await page.locator(".row-panel svg").waitFor();
  await page.finish();
});

test("export-too-large: the expression is exported instead", async () => {
  const page = await site.open({ mask: "causal", shape: { len: 65_536 } });
  await settled(page);
  await page.getByRole("button", { name: "Export" }).click();
  await page.getByRole("menuitem", { name: /NumPy/ }).click();
  const file = page.waitForEvent("download");
  await page.getByRole("button", { name: "export the expression" }).click();
  assert.match((await file).suggestedFilename(), /txt|mask/);
  await settled(page);
  await page.finish();
});

test("a number that cannot be read is put back by a click", async () => {
  const page = await site.open({ mask: "causal", shape: { len: 24 } });
  await settled(page);
  const length = page.getByLabel("Length", { exact: true });
  await length.fill("abc");
  await page.getByRole("button", { name: "put back 24" }).click();
  assert.equal(await length.inputValue(), "24");
  assert.ok(await length.evaluate((input) => input === document.activeElement));
  await settled(page);
  await page.finish();
});

test("completions and examples insert operators, undo works through them, and typed masks enter the history", async () => {
  const page = await site.open({ mask: "causal", shape: { len: 16 } });
  await settled(page);
  const editor = page.getByRole("textbox", { name: "Mask", exact: true });
  await editor.click();
  await page.keyboard.press("End");
  await page.keyboard.type(" slid");
  await page.getByRole("option", { name: /^sliding/ }).first().waitFor();
  await page.keyboard.press("Enter");
  assert.match(await editor.inputValue(), /^causal & sliding\(\)$/);
  await page.keyboard.type("3");
  await rests(page, 1300);
  await page.keyboard.press("End");
  await page.locator(".docs .example").first().click();
  assert.match(await editor.inputValue(), /^causal & sliding\(3\) & \S+/);
  await rests(page, 1300);
  await editor.focus();
  await page.keyboard.press("Control+z");
  assert.equal(await editor.inputValue(), "causal & sliding(3)");
  await page.keyboard.press("Control+z");
  await page.keyboard.press("Control+z");
  assert.match(await editor.inputValue(), /^causal slid$|^causal$|^causal & sliding\(\)$/);
  await rests(page, 1300);
  // A pause of the test between two keys may add further entries.
  const texts = [];
  while (texts.at(-1) !== "causal" && texts.length < 12) {
    const last = await editor.inputValue();
    await page.goBack();
    await page.waitForFunction((old) => document.querySelector("textarea").value !== old, last);
    texts.push(await editor.inputValue());
  }
  const example = texts.findIndex((text) => text.startsWith("causal & sliding(3) & "));
  assert.ok(example >= 0 && texts.indexOf("causal & sliding(3)", example) > example && texts.at(-1) === "causal", texts.join(" < "));
  await page.finish();
});

test("layer, batch row and head have visible steppers", async () => {
  const page = await site.open({
    mask: "layers(every 2: heads(0: sliding(3), 1: causal), else: padding)", shape: { len: 12, heads: 2, batch: 2 }, facts: { lengths: [12, 5] }, layer: 0,
  });
  await settled(page);
  const { picture: cell } = { picture: (q, k) => page.waitForFunction(([row, key]) => document.querySelector(".picture").picture.cell(row, key)?.byte, [q, k]) };
  await page.getByRole("button", { name: "Next head" }).click();
  await cell(9, 0);
  await page.getByRole("button", { name: "Next layer" }).click();
  await cell(0, 9);
  await page.getByRole("button", { name: "Next batch row" }).click();
  await page.waitForFunction(() => document.querySelector(".picture").picture.cell(0, 9)?.byte === 0);
  await page.getByRole("button", { name: "Next batch row", disabled: true }).waitFor();
  await page.locator(".steppers").getByLabel("Layer", { exact: true }).fill("4");
  await page.waitForFunction(() => document.querySelector(".picture").picture.cell(9, 0)?.byte === 2);
  await page.finish();
});

test("presets open on what they are about", async () => {
  const page = await site.open();
  const presets = await page.evaluate(() => fetch("api/presets").then((answer) => answer.json()));
  for (const preset of presets.filter(({ view }) => view === "mask")) {
    await page.getByRole("button", { name: "Presets" }).click();
    await page.locator(".preset", { has: page.locator(".preset-name", { hasText: preset.name }) }).first().click();
    await page.locator(".why-cell").waitFor();
    assert.equal(await page.locator(".editor-error:visible").count(), 0, preset.name);
    const [q, k] = preset.cell;
    await page.waitForFunction((words) => document.querySelector(".why-cell")?.textContent.includes(words), `query ${q.toLocaleString("en")}`);
    const why = await page.locator(".why").innerText();
    console.log(`${preset.name}: ${q}, ${k}: ${why.split("\n").slice(0, 2).join(" ")}`);
    if (preset.scene.layer !== undefined) assert.ok(await page.locator(".steppers").getByLabel("Layer", { exact: true }).isVisible());
  }
  await page.finish();
});

test("tiles, explanations, comparisons and presets that fail are requested again by a click", async () => {
  const page = await site.open({ mask: "causal", other: "sliding(4)", shape: { len: 64 }, cell: [20, 9] });
  await settled(page);
  const again = (place) => page.locator(place).getByRole("button", { name: "try again" });
  for (const [path, place, act, shown] of [
    ["**/tiles/**", ".picture-failure", () => say(page, "causal & sliding(9)"), () => settled(page)],
    ["**/explain?**", ".why-body", () => page.evaluate(async () => (await import("./js/base/state.js")).state.set({ cell: [21, 9] })), () => page.locator(".why-cell", { hasText: "query 21" }).waitFor()],
    ["**/difference?**", ".difference", () => say(page, "causal & sliding(11)"), () => page.locator(".difference").getByText("only by the first mask").waitFor()],
    ["**/api/presets", "#toasts", () => page.getByRole("button", { name: "Presets" }).click(), () => page.locator(".preset").first().waitFor()],
  ]) {
    const end = await failing(page, path, 500);
    await act();
    await again(place).first().waitFor();
    await page.waitForLoadState("networkidle"); // the page sends its other requests of the typed mask
    await page.waitForTimeout(1500);
    await end();
    await again(place).first().click();
    await shown();
  }
  await page.finish();
});

test("a pasted array that cannot be read leads to one that can", async () => {
  const page = await site.open({ mask: "causal", shape: { len: 24 } });
  await settled(page);
  await page.getByRole("button", { name: "Paste an array" }).click();
  const input = page.getByRole("textbox", { name: "Array" });
  await input.fill("[1, 2, ..., 9]");
  await page.getByRole("button", { name: "paste cu_seqlens = [0, 8, 24]" }).click();
  assert.ok(await input.evaluate((field) => field === document.activeElement));
  await page.getByRole("button", { name: "Use", exact: true }).click();
  await page.waitForFunction(() => document.querySelector("textarea").value === "causal & documents");
  await settled(page);
  await page.finish();
});

test("a file without a mask leads to the doctor, and a file that failed is read again", async () => {
  const page = await site.open({ mask: "causal", other: "full", shape: { len: 6 } });
  await settled(page);
  const file = page.locator(".comparison input[type=file]");
  await file.setInputFiles({ name: "notes.npy", mimeType: "application/octet-stream", buffer: Buffer.from("no mask") });
  const toast = page.locator(".toast.error").first();
  await toast.waitFor();
  await toast.locator(".repair").first().waitFor();
  const end = await failing(page, "**/api/doctor**", 500);
  const cells = npy(bools([6, 6], Array.from({ length: 36 }, (_, at) => at % 6 <= at / 6)));
  await page.evaluate(() => document.querySelectorAll(".toast").forEach((note) => note.remove()));
  await file.setInputFiles({ name: "saved.npy", mimeType: "application/octet-stream", buffer: Buffer.from(cells) });
  await page.locator(".toast").getByRole("button", { name: "try again" }).waitFor();
  await end();
  await page.locator(".toast").getByRole("button", { name: "try again" }).click();
  await page.locator(".difference").getByText(/only by the|The same cells/).first().waitFor();
  await page.finish();
});

test("typed numbers of a row that cannot be read are put back by a click", async () => {
  const page = await site.open({ mask: "full", shape: { len: 3 }, row: { open: true, from: "typed" }, cell: [1, 0] });
  const input = page.getByLabel("Scores, one for each key");
  await page.waitForFunction(() => document.querySelector(".row-typed input")?.value !== "");
  const before = await input.inputValue();
  await input.fill("0, x");
  await page.getByRole("button", { name: "go back to the valid numbers" }).click();
  assert.equal(await input.inputValue(), before);
  assert.ok(await input.evaluate((field) => field === document.activeElement));
  assert.equal(await page.getByRole("button", { name: "go back to the valid numbers" }).count(), 0);
  await page.locator(".row-panel svg").waitFor();
  await page.finish();
});
