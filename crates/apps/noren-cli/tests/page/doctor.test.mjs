// The doctor view: a faulty mask is dropped, diagnosed and repaired.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { npy, bools, floats, integers, safetensors } from "./doctor-files.mjs";
import { doctorCommand } from "../../../noren-explorer/page/js/base/command.js";
import { EXAMPLES } from "../../../noren-explorer/page/js/doctor/examples.js";
import { themed, violations } from "./axe.mjs";
import { CONTENTS } from "./doctor-contents.mjs";
import { explorer, root, settled } from "./explorer.mjs";

let site;
before(async () => (site = await explorer()));
after(() => site?.close());

const WAIT = { timeout: 60_000 };
const open = (doctor = {}, options) => site.open({ view: "doctor", doctor }, options);
const square = (len, keep) => bools([len, len], Array.from({ length: len * len }, (_, at) => keep(Math.floor(at / len), at % len)));
const file = (name, bytes) => ({ name, mimeType: "application/octet-stream", buffer: Buffer.from(bytes) });
const give = (page, ...one) => page.locator("input[type=file]").setInputFiles(file(...one));
const verdict = (page, words) => page.locator(".doctor-verdict h2", { hasText: words }).waitFor(WAIT);

/** Returns the number type, the shape and the bytes of the numbers of an npy file. */
function read(bytes) {
  const length = bytes.readUInt16LE(8);
  const [, type, shape] = /'descr': '([^']*)'.*'shape': \(([^)]*)\)/.exec(bytes.subarray(10, 10 + length).toString("latin1"));
  return { type, shape: shape.split(",").map((n) => n.trim()).filter(Boolean).map(Number), numbers: [...bytes.subarray(10 + length)] };
}

test("a mask that is one key too wide is dropped and its repair taken", async () => {
  const page = await open({ context: { kind: "causal", convention: "keep_bool" } });
  // Drops the file as a user does: the event contains the file.
  const bytes = [...npy(square(10, (q, k) => k <= q + 1))];
  await page.evaluate((content) => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(content)], "mask.npy"));
    document.querySelector(".doctor-zone").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
  }, bytes);
  await verdict(page, "The causal triangle is one key too wide");
  assert.match(await page.locator(".doctor-finding").first().innerText(), /Error[\s\S]*certain[\s\S]*9 cells/);
  await settled(page, ".doctor-picture .picture");
  // Only the given mask allows (0, 1); no cell is hidden that the repair shows.
  const byte = (...cell) => page.evaluate((at) => document.querySelector(".doctor-picture .picture").picture.cell(...at).byte, cell);
  assert.equal((await byte(0, 1)) & 16, 16);
  assert.equal((await byte(5, 5)) & 48, 0);
  assert.match(await page.locator(".doctor-expression code").innerText(), /^causal$/);
  await page.finish();
});

test("a repair has the shape, the number type and the convention of the file", async () => {
  const cells = (extra) => Array.from({ length: 100 }, (_, at) => at % 10 <= Math.floor(at / 10) + extra);
  const kinds = {
    keep_bool: ["|b1", [10, 10], (extra) => bools([10, 10], cells(extra))],
    ignore_bool: ["|b1", [1, 10, 10], (extra) => bools([1, 10, 10], cells(extra).map((keep) => !keep))],
    keep_01: ["<i8", [1, 1, 10, 10], (extra) => integers([1, 1, 10, 10], cells(extra).map(Number))],
    additive: ["<f4", [1, 1, 10, 10], (extra) => floats([1, 1, 10, 10], cells(extra).map((keep) => (keep ? 0 : -Infinity)))],
  };
  for (const [convention, [type, shape, array]] of Object.entries(kinds)) {
    const page = await open({ context: { kind: "causal", convention } });
    await give(page, "mask.npy", npy(array(1)));
    await verdict(page, "The causal triangle is one key too wide");
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download the repair" }).click()]);
    const { values } = array(0);
    const numbers = [...new Uint8Array(values.buffer)];
    assert.deepEqual(read(readFileSync(await download.path())), { type, shape, numbers }, convention);
    await page.finish();
  }
});

test("the view as a command", () => {
  assert.equal(doctorCommand("mask.npy", { kind: "causal" }, "causal", [1, 1, 8, 8]),
    "noren check mask.npy -d kind=causal --meant causal --q 8 --kv 8");
  assert.equal(doctorCommand("-m.npy", {}, "causal", [2, 1, 4, 16]),
    "noren check ./-m.npy --meant causal --q 4 --kv 16 --query-offset 12 --batch 2");
  assert.match(doctorCommand("m.npy", {}, "full", [1, 4, 9, 4]), / --query-offset=-5 --heads 4$/);
  assert.equal(doctorCommand("m.npy", {}, "", [1, 1, 4, 16]), "noren check m.npy");
});

test("a file without a mask is not correct", async () => {
  const page = await open();
  const bytes = safetensors({ input_ids: integers([1, 4], [1, 2, 3, 4]), lengths: integers([1], [4]) });
  await give(page, "batch.safetensors", bytes);
  const said = page.locator(".doctor-verdict, .doctor-main > .notice.bad").filter({ visible: true });
  await said.first().waitFor(WAIT);
  assert.match(await said.first().innerText(), /none of the arrays[\s\S]*input_ids[\s\S]*mask/i);
  assert.equal(await page.locator(".doctor-verdict.good").count(), 0);
  // The same holds if the doctor found no mistake in such a file.
  const report = { faulty: false, classes: [], description: "", findings: [], arrays: ["ids", "lengths"], dims: null, given: null };
  await page.route("**/api/doctor?*", (route) => route.fulfill({ json: report }));
  await give(page, "other.safetensors", bytes);
  await verdict(page, "No mask in this file");
  assert.match(await page.locator(".doctor-verdict.none").innerText(), /The file has these arrays: ids, lengths\. The array of the mask must have the name mask\./);
  assert.deepEqual(await violations(page), []);
  await page.finish();
});

test("a wrong cell is shown at its position", async () => {
  const page = await open();
  await page.locator('[data-example="wide"]').click();
  await verdict(page, "The causal triangle is one key too wide");
  await page.getByRole("button", { name: "query 3, key 4" }).click();
  await page.waitForFunction(() => location.hash.includes("'cell':[0,0,3,4]"));
  assert.match(await page.locator(".doctor-at").innerText(), /query 3, key 4/);
  assert.deepEqual(await page.evaluate(() => document.querySelector(".doctor-picture .picture").picture.cursor()), { q: 3, k: 4 });
  await page.getByRole("button", { name: "Repaired" }).click();
  await page.waitForFunction(() => location.hash.includes("'side':'fixed'"));
  await page.finish();
});

test("every example has its mistake", async () => {
  const expected = {
    wide: "causal_leak", inverted: "inverted_polarity", documents: "cross_document", window: "sliding_window_off_by_one",
    aligned: "causal_alignment", overflow: "double_mask_overflow",
  };
  assert.deepEqual(Object.keys(expected), EXAMPLES.map((example) => example.id));
  assert.deepEqual(Object.keys(CONTENTS), EXAMPLES.map((example) => example.name));
  for (const [name, content] of Object.entries(CONTENTS)) assert.deepEqual(readFileSync(join(root, "crates/apps/noren-explorer/page/examples", name)), Buffer.from(content()), name);
  const page = await open();
  for (const [example, name] of Object.entries(expected)) {
    await page.locator(`[data-example="${example}"]`).click();
    await page.locator(".doctor-finding .doctor-link", { hasText: name }).first().waitFor(WAIT);
  }
  await page.finish();
});

test("declarations change the diagnosis", async () => {
  const page = await open();
  await give(page, "mask.npy", npy(square(8, () => true)));
  await verdict(page, "Looks like");
  await page.getByLabel("Kind").selectOption("causal");
  await page.locator(".doctor-verdict.bad").waitFor(WAIT);
  await page.getByLabel("Kind").selectOption("");
  await verdict(page, "Looks like");
  await page.getByRole("textbox", { name: "The intended mask" }).fill("causal");
  await page.locator(".doctor-verdict.bad").waitFor(WAIT);
  await page.waitForFunction(() => location.hash.includes("'meant':'causal'"));
  await page.getByText("Further keys").click();
  await page.getByLabel("Key", { exact: true }).fill("heads");
  await page.getByLabel("Value", { exact: true }).fill("4");
  await page.waitForFunction(() => location.hash.includes("'heads':4"));
  await page.finish();
});

test("hostile files are refused with a message, and the page continues", async () => {
  const page = await open();
  const problem = page.locator(".doctor-main > .notice");
  const lies = npy(square(4, () => true));
  new TextEncoder().encodeInto("(99999999, 99999999), }", lies.subarray(10 + "{'descr': '|b1', 'fortran_order': False, 'shape': ".length));
  const endless = Buffer.from([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x80]); // a header of 2^63 bytes
  const hostile = {
    "noise.npy": Buffer.from("this is no array"), "empty.npz": Buffer.alloc(0), "lies.npy": lies, "endless.safetensors": endless,
  };
  for (const [name, bytes] of Object.entries(hostile)) {
    await give(page, name, bytes);
    await problem.waitFor(WAIT);
    assert.ok((await problem.innerText()).length > 10, name);
    await give(page, "good.npy", npy(square(6, (q, k) => k <= q)));
    await verdict(page, "Looks like");
    await problem.waitFor({ state: "hidden" });
  }
  await give(page, "mask.pt", Buffer.from("PK"));
  assert.match(await problem.innerText(), /not an array file: give .npy, .npz or .safetensors/);
  await page.finish();
});

test("a link shows that it does not contain the file", async () => {
  const page = await open({ file: "mask.npy", context: { kind: "causal" } });
  assert.match(await page.locator(".doctor-dropped").innerText(), /A link cannot carry a file: drop the file here again/);
  assert.equal(await page.getByLabel("Kind").inputValue(), "causal");
  await page.finish();
});

test("declarations for an example or another file do not apply to a dropped file", async () => {
  const page = await open();
  await page.locator('[data-example="inverted"]').click();
  await page.locator(".doctor-verdict.bad").waitFor(WAIT);
  assert.equal(await page.getByLabel("Kind").inputValue(), "bidirectional");
  await page.getByLabel("Kind").focus();
  const causal = npy(square(80, (q, k) => k <= q));
  await give(page, "mine.npy", causal);
  await page.getByText("The declarations for batch.safetensors are cleared: declare the properties of mine.npy.").waitFor(WAIT);
  await page.locator(".doctor-dropped", { hasText: "mine.npy" }).waitFor(WAIT);
  await page.waitForFunction(() => !document.querySelector(".doctor").hasAttribute("aria-busy"), null, WAIT);
  await page.locator(".doctor-verdict").waitFor(WAIT);
  assert.equal(await page.locator(".doctor-verdict.bad").count(), 0);
  for (const field of ["Kind", "True or 1 means", "Padding id"]) assert.equal(await page.getByLabel(field).inputValue(), "", field);
  await page.waitForFunction(() => !location.hash.includes("'context'"));
  // The user's own declarations stay for the same file, and are cleared for another file.
  await page.getByLabel("Kind").selectOption("bidirectional");
  await page.locator(".doctor-verdict.bad").waitFor(WAIT);
  await give(page, "mine.npy", npy(square(80, () => true)));
  await page.getByText("mine.npy has changed: its earlier declarations still apply.").waitFor(WAIT);
  await page.locator(".doctor-verdict.bad").waitFor({ state: "detached", ...WAIT });
  assert.equal(await page.getByLabel("Kind").inputValue(), "bidirectional");
  await give(page, "other.npy", causal);
  await page.getByText("The declarations for mine.npy are cleared").waitFor(WAIT);
  assert.equal(await page.getByLabel("Kind").inputValue(), "");
  await page.finish();
});

test("further keys of an example do not stay in their rows", async () => {
  const page = await open({ example: "wide", context: { kind: "causal", heads: 1 } });
  await page.locator(".doctor-verdict").waitFor(WAIT);
  await page.getByText("Further keys").click();
  await page.getByLabel("Value", { exact: true }).focus();
  await give(page, "mine.npy", npy(square(8, (q, k) => k <= q)));
  await page.waitForFunction(() => !location.hash.includes("'heads'"));
  assert.deepEqual(await page.getByLabel("Key", { exact: true }).evaluateAll((all) => all.map((one) => one.value)), []);
  await page.finish();
});

test("a file stays while other views are open, and back and forward restore its earlier versions", async () => {
  const page = await open();
  await give(page, "wide.npy", npy(square(12, (q, k) => k <= q + 1)));
  await page.locator(".doctor-dropped", { hasText: "wide.npy" }).waitFor(WAIT);
  await page.locator(".doctor-verdict").waitFor(WAIT);
  await give(page, "right.npy", npy(square(9, (q, k) => k <= q)));
  await page.locator(".doctor-dropped", { hasText: "right.npy" }).waitFor(WAIT);
  await page.locator(".doctor-verdict").waitFor(WAIT);
  await page.getByRole("navigation").getByText("Mask", { exact: true }).click();
  await page.locator(".workbench").waitFor();
  await page.getByRole("navigation").getByText("Doctor", { exact: true }).click();
  await page.locator(".doctor-verdict").waitFor(WAIT);
  assert.match(await page.locator(".doctor-dropped").innerText(), /^right\.npy/);
  await page.goBack();
  await page.goBack();
  await page.goBack();
  await page.locator(".doctor-dropped", { hasText: "wide.npy" }).waitFor(WAIT);
  await page.locator(".doctor-verdict").waitFor(WAIT);
  assert.equal(await page.locator(".doctor-dropped.warn").count(), 0);
  await page.finish();
});

test("the catalogue is searched, and its examples are diagnosed", async () => {
  const page = await open();
  const classes = page.locator(".doctor-class");
  await classes.first().waitFor(WAIT);
  assert.ok((await classes.count()) > 50);
  await page.getByLabel("Search the catalogue").fill("triangle too narrow");
  await page.waitForFunction(() => [...document.querySelectorAll(".doctor-class")].filter((one) => !one.hidden).length === 1);
  await page.locator(".doctor-class:not([hidden]) summary").click();
  await page.locator(".doctor-class[open] canvas").nth(1).waitFor(WAIT);
  await page.getByRole("button", { name: "Diagnose this example" }).click();
  await verdict(page, "The causal triangle is one key too narrow");
  await page.finish();
});

test("an address that holds nonsense breaks nothing", async () => {
  const page = await open({ example: "none", context: [], meant: 5, side: "up", cell: [1], open: "nothing", file: 7 });
  await page.locator(".doctor-class").first().waitFor(WAIT);
  await page.locator('[data-example="wide"]').click();
  await verdict(page, "The causal triangle is one key too wide");
  await page.finish();
});

test("axe: a diagnosis, everything open", async () => {
  const page = await open({ example: "wide", context: { kind: "causal", convention: "keep_bool" }, open: "causal_leak" });
  await verdict(page, "The causal triangle is one key too wide");
  await page.getByText("Further keys").click();
  await settled(page, ".doctor-picture .picture");
  assert.deepEqual(await themed(page), []);
  await page.finish();
});
