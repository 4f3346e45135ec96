// Large masks: labels, moving through the picture, pasted arrays, a file as the second mask.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { drawn, explorer, painted, root, settled } from "./explorer.mjs";

const { bools, npy } = await import("./doctor-files.mjs");

let site;
before(async () => (site = await explorer()));
after(() => site?.close());

const WORDS = ["A", "considerably", "longer", "tokenization", "is"];
const TALL = Array.from({ length: 64 }, (_, at) => WORDS[at % WORDS.length]);

test("no label is cut off, at any length, zoom and width", async () => {
  const page = await site.open({ mask: "causal", shape: { len: 24 } });
  await settled(page);
  const check = async (what) => {
    await painted(page);
    const wrong = await page.evaluate(() => {
      const { picture } = document.querySelector(".picture");
      const { width, height } = picture.element.getBoundingClientRect();
      const { labels } = picture;
      const out = labels.filter(({ left, top, right, bottom }) => left < 0 || top < 0 || right > width || bottom > height);
      const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
      const over = labels.flatMap((a, i) => labels.slice(i + 1).filter((b) => meet(a, b)).map((b) => [a, b]));
      return { count: labels.length, out, over };
    });
    assert.ok(wrong.count >= 4, `${what}: ${wrong.count} labels`);
    assert.deepEqual([wrong.out, wrong.over], [[], []], what);
  };
  for (const [width, height] of [[1440, 900], [390, 844], [820, 1180]]) {
    await page.setViewportSize({ width, height });
    for (const shape of [{ len: 24 }, { len: 1000 }, { len: 131_072 }, { len: 1 << 20 }, { len: 4_194_304 }, { q: 1, kv: 1 << 20, query_offset: (1 << 20) - 1 }, { q: 4096, kv: 8, query_offset: 0 }]) {
      await page.evaluate(async (to) => (await import("./js/base/state.js")).state.set({ shape: to, camera: null, cell: null }), shape);
      const [q, k] = [shape.len ?? shape.q, shape.len ?? shape.kv];
      await page.waitForFunction(([rows, keys]) => { const { camera } = document.querySelector(".picture").picture; return camera.qLen === rows && camera.kvLen === keys; }, [q, k]);
      await check(`${JSON.stringify(shape)} at ${width}`);
      for (const across of [k / 3, k / 1000, 12]) {
        await page.evaluate(([row, key, keys]) => document.querySelector(".picture").picture.go([row, key, keys]), [q * 0.93, k * 0.97, Math.max(4, across)]);
        await check(`${JSON.stringify(shape)} at ${width}, ${across} keys across`);
      }
    }
  }
  await page.finish();
});

test("names of tokens are not cut off", async () => {
  const page = await site.open({ mask: "causal", shape: { len: 64 } });
  await settled(page);
  await page.evaluate((names) => {
    const { picture } = document.querySelector(".picture");
    const { qLen, kvLen } = picture.camera;
    picture.show({ id: picture.element.dataset.settled, qLen, kvLen, tokens: { queries: names, keys: names } });
  }, TALL);
  await painted(page);
  const labels = await page.evaluate(() => document.querySelector(".picture").picture.labels);
  assert.ok(labels.some(({ text }) => text === "considerably"));
  assert.deepEqual(labels.filter(({ left, top }) => left < 0 || top < 0), []);
  await page.finish();
});

test("a query and a key are gone to, and borders are found", async () => {
  const page = await site.open({ mask: "causal & sliding(4096)", shape: { len: 1 << 20 } });
  await settled(page);
  const bar = page.getByRole("form", { name: "Go to" });
  await bar.getByLabel("Query").fill("900,000");
  await bar.getByLabel("Key").fill("899000");
  await bar.getByRole("button", { name: "Go", exact: true }).click();
  const at = (q, k) => page.waitForFunction(([row, key]) => location.hash.includes(`'cell':[${row},${key}]`), [q, k]);
  await at(900_000, 899_000);
  const seen = () => page.evaluate(() => document.querySelector(".picture").picture.camera.seen());
  const { q0, q1, k0, k1 } = await seen();
  assert.ok(q0 <= 900_000 && q1 > 900_000 && k0 <= 899_000 && k1 > 899_000);
  await bar.getByRole("button", { name: "Border to the left" }).click();
  await at(900_000, 895_904); // the last key that the window hides
  await bar.getByRole("button", { name: "Border to the right" }).click();
  await at(900_000, 895_905);
  await page.locator(".picture").first().focus();
  await page.keyboard.press("]");
  await at(900_000, 900_001); // the first key after the query
  await page.keyboard.press("{");
  await page.locator(".toast", { hasText: "No border there: the rest of key 900,001 is hidden." }).waitFor();
  await page.keyboard.press("}");
  await at(900_001, 900_001);
  await page.keyboard.press("}");
  await at(904_097, 900_001);
  await bar.getByLabel("Key").fill("2000000");
  await page.keyboard.press("Enter");
  await page.locator(".toast", { hasText: "There are the keys 0 to 1,048,575." }).waitFor();
  await page.finish();
});

test("the map is clicked and dragged", async () => {
  const page = await site.open({ mask: "causal", shape: { len: 65_536 }, camera: [30_000, 30_000, 4000] });
  await settled(page);
  const place = () => page.evaluate(() => document.querySelector(".picture").picture.camera.place);
  const picture = await page.locator(".picture").first().boundingBox();
  const { x, y, width, height } = await page.evaluate(async () => (await import("./js/picture/paint.js")).mapBox(document.querySelector(".picture").picture.camera));
  const at = (share) => [picture.x + x + width * share, picture.y + y + height * share];
  await page.mouse.click(...at(0.75));
  const clicked = await place();
  assert.ok(Math.abs(clicked[0] - 49_152) < 700 && Math.abs(clicked[1] - 49_152) < 700, String(clicked));
  assert.equal(await page.locator(".why-cell").count(), 0, "a click on the map pins no cell");
  await page.mouse.move(...at(0.75));
  await page.mouse.down();
  await page.mouse.move(...at(0.5), { steps: 5 });
  await page.mouse.move(...at(0.25), { steps: 5 });
  await page.mouse.up();
  const dragged = await place();
  assert.ok(Math.abs(dragged[0] - 16_384) < 700 && dragged[2] === clicked[2], String(dragged));
  await page.finish();
});

test("pasted arrays become facts, and ambiguous ones are refused with their readings", async () => {
  const page = await site.open({ mask: "causal", shape: { len: 24 } });
  await settled(page);
  const paste = async (text) => {
    await page.getByRole("button", { name: "Paste an array" }).click();
    await page.getByRole("textbox", { name: "Array" }).fill(text);
  };
  const outcome = page.locator(".paste-outcome");
  await paste("cu_seqlens = tensor([0, 2, 5], device='cuda:0', dtype=torch.int32)");
  await outcome.getByText("This is cu_seqlens: 0, and then the ends of packed documents, 2 in 1 row.").waitFor();
  await outcome.getByRole("button", { name: "Use", exact: true }).click();
  await page.waitForFunction(() => document.querySelector(".picture").picture.camera.qLen === 5);
  assert.deepEqual(await drawn(page), ["#....", "##...", "..#..", "..##.", "..###"]);
  assert.equal(await page.getByRole("textbox", { name: "Mask", exact: true }).inputValue(), "causal & documents");
  await paste("[[1, 1, 1, 0], [1, 0, 0, 0]]");
  await outcome.getByText("This is attention_mask: 1 is a token and 0 is padding; 4 of 8 entries are padding. 2 batch rows of 4 tokens.").waitFor();
  await outcome.getByRole("button", { name: "Use", exact: true }).click();
  await page.waitForFunction(() => document.querySelector(".picture").picture.camera.qLen === 4);
  assert.deepEqual(await drawn(page), ["###.", "###.", "###.", "###."]);
  await paste("[0, 0, 1, 1, 1]");
  await outcome.getByText("Ambiguous: this array has 2 readings.").waitFor();
  assert.equal(await outcome.getByRole("button", { name: "Use", exact: true }).count(), 0);
  assert.equal(await outcome.getByRole("button", { name: /^Use as/ }).count(), 2);
  await outcome.getByRole("button", { name: /^Use as segment_ids/ }).click();
  await page.waitForFunction(() => document.querySelector(".picture").picture.camera.qLen === 5);
  assert.deepEqual(await drawn(page), ["#....", "##...", "..#..", "..##.", "..###"]);
  await paste("[1, 2, ..., 9]");
  await outcome.getByText("abbreviated").waitFor();
  await page.getByRole("textbox", { name: "Array" }).fill("[[0, 1, 2, 0, 1]]");
  await outcome.getByText("This is position_ids").waitFor();
  await page.keyboard.press("Escape");
  await page.finish();
});

test("the mask of a file is the second mask of a comparison", async () => {
  const folder = mkdtempSync(join(tmpdir(), "noren-file-"));
  const cells = Array.from({ length: 6 }, (_, q) => Array.from({ length: 6 }, (_, k) => k <= q && !(q === 5 && k === 2))).flat();
  writeFileSync(join(folder, "saved.npy"), npy(bools([6, 6], cells)));
  const page = await site.open({ mask: "causal", shape: { len: 24 } });
  await settled(page);
  await page.getByRole("button", { name: "Compare with another mask" }).click();
  await page.locator(".comparison input[type=file]").setInputFiles(join(folder, "saved.npy"));
  await page.getByText("The sizes differ: 6 × 6 and 24 × 24.").or(page.getByText("The sizes differ: 24 × 24 and 6 × 6.")).waitFor();
  await page.getByRole("button", { name: "use 6 × 6" }).click();
  await page.locator(".difference").getByText("1 allowed only by the first mask").waitFor();
  await page.getByRole("button", { name: "First difference" }).click();
  await page.locator(".why").getByText("The other mask denies this cell.").waitFor();
  assert.match(await page.locator(".why-cell").innerText(), /query 5 → key 2/);
  await page.finish();
  rmSync(folder, { recursive: true });
});

test("a picture that is being redrawn says so", async () => {
  const page = await site.open({ mask: "causal", shape: { len: 65_536 } });
  await settled(page);
  let release;
  const held = new Promise((done) => (release = done));
  await page.route("**/tiles/**", async (route) => { await held; await route.continue(); });
  await page.getByRole("button", { name: "Zoom in" }).click();
  await page.locator(".picture-veil", { hasText: "Drawing …" }).first().waitFor();
  release();
  await settled(page);
  await page.locator(".picture-veil").first().waitFor({ state: "hidden" });
  await page.finish();
});
