// Large masks: zoom from the whole mask to cells at 1,048,576 tokens. `bench.mjs` measures how long frames and keystrokes take.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { cover, explorer, settled } from "./explorer.mjs";

const MILLION = 1 << 20;

let site;
before(async () => (site = await explorer()));
after(() => site?.close());

test("single cells of a mask of 1,048,576 tokens", async () => {
  const page = await site.open({ shape: { len: MILLION }, mask: "sliding(4096) | causal & keys(0..4)" });
  await settled(page);
  const jump = (q, k) =>
    page.evaluate(([row, key]) => document.querySelector(".picture").picture.jump({ q: row, k: key }), [q, k]);
  await jump(900_000, 895_905);
  await page.waitForFunction(() => document.querySelector(".picture").picture.cell(900000, 895905)?.level === 0);
  await settled(page);
  assert.deepEqual([await cover(page, 900_000, 895_904), await cover(page, 900_000, 895_905)], [0, 2]);
  await jump(1_000_000, 3);
  await page.waitForFunction(() => document.querySelector(".picture").picture.cell(1000000, 3)?.level === 0);
  assert.deepEqual([await cover(page, 1_000_000, 3), await cover(page, 1_000_000, 4)], [2, 0]);
  await page.finish();
});

test("the wheel goes from everything to one cell", async () => {
  const page = await site.open({ shape: { len: MILLION }, mask: "causal" });
  await settled(page);
  const box = await page.locator(".picture").first().boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  for (let i = 0; i < 60; i += 1) await page.mouse.wheel(0, -200);
  await page.waitForFunction(() => document.querySelector(".picture").picture.camera.scale >= 63);
  await settled(page);
  const cell = await page.locator(".why-cell").innerText();
  assert.match(cell, /query \d{3},\d{3} → key \d{3},\d{3}/);
  await page.finish();
});

test("a long mask is edited", async () => {
  const page = await site.open({ shape: { len: 64 }, mask: "causal" });
  await settled(page);
  await page.evaluate(() => {
    const input = document.querySelector("textarea");
    input.focus();
    input.setRangeText(" | keys(3..5) & !chunk(2)".repeat(80), input.value.length, input.value.length, "end");
    input.dispatchEvent(new Event("input"));
  });
  await page.waitForFunction(() => document.querySelector(".picture").picture.cell(0, 3)?.byte === 2);
  await page.finish();
});
