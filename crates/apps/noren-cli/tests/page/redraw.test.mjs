// Picture and explanation belong to the mask that is typed, or are marked as outdated; row numbers are whole.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { explorer, hold, say, settled } from "./explorer.mjs";

let site;
before(async () => (site = await explorer()));
after(() => site?.close());

const veil = (page) => page.locator(".picture-veil").first();

/** Returns a colour of the page by its name. */
const ink = (page, name) => page.evaluate(async (of) => [...(await import("./js/base/theme.js")).colour(of).slice(0, 3)], name);

/** Returns the colours of cell (q, k) on the screen, including everything drawn over it. */
async function onScreen(page, q, k) {
  const shot = await page.screenshot();
  return page.evaluate(
    async ([source, row, key]) => {
      const image = Object.assign(new Image(), { src: `data:image/png;base64,${source}` });
      await image.decode();
      const { element, camera } = document.querySelector(".picture").picture;
      const box = element.getBoundingClientRect();
      const copy = new OffscreenCanvas(image.width, image.height).getContext("2d");
      copy.drawImage(image, 0, 0);
      const [x, y] = [Math.floor(box.left + camera.x(key + 0.2)), Math.floor(box.top + camera.y(row + 0.2))];
      const side = Math.max(2, Math.floor(camera.scale * 0.6));
      const { data } = copy.getImageData(x, y, side, side);
      return Array.from({ length: data.length / 4 }, (_, at) => [...data.slice(4 * at, 4 * at + 3)]);
    },
    [shot.toString("base64"), q, k],
  );
}

const near = (a, b) => a.every((channel, at) => Math.abs(channel - b[at]) <= 12);

test("while the new picture is fetched, nothing of the mask before it stays", async () => {
  const page = await site.open({ shape: { len: 8 }, mask: "full", cell: [0, 5] });
  await settled(page);
  const some = await ink(page, "some");
  const allowed = await ink(page, "allowed");
  assert.ok((await onScreen(page, 2, 6)).every((colour) => near(colour, allowed)));
  const release = await hold(page, "**/tiles/**");
  await say(page, "causal");
  await veil(page).getByText("Drawing …").waitFor();
  const colours = await onScreen(page, 2, 6);
  assert.ok(!colours.some((colour) => near(colour, some) || near(colour, allowed)), "the colours of the legend");
  release();
  await veil(page).waitFor({ state: "hidden" });
  await settled(page);
  assert.ok((await onScreen(page, 5, 2)).every((colour) => near(colour, allowed)));
  await page.finish();
});

test("while the server reads the mask, the picture is marked and no explanation of another mask is shown", async () => {
  const page = await site.open({ shape: { len: 8 }, mask: "full", cell: [2, 5] });
  await settled(page);
  const why = page.locator(".why");
  await why.getByRole("heading", { name: "May read" }).waitFor();
  const some = await ink(page, "some");
  const release = await hold(page, "**/api/masks");
  await say(page, "causal");
  await veil(page).getByText("Reading the mask …").waitFor();
  assert.equal(await why.getByRole("heading", { name: "May read" }).count(), 0);
  assert.equal((await page.locator(".why-body").innerText()).trim(), "Reading the mask …");
  assert.ok(!(await onScreen(page, 2, 4)).some((colour) => near(colour, some)), "the colour of `some`");
  // Pointing at a cell shows no explanation either.
  const box = await page.locator(".picture").first().boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.waitForTimeout(200);
  assert.equal(await why.locator(".why-cell").count(), 0);
  await page.mouse.move(5, 5);
  release();
  await why.getByRole("heading", { name: "May not read" }).waitFor();
  await veil(page).waitFor({ state: "hidden" });
  await page.finish();
});

test("a text with an error has no explanation, and its picture is marked", async () => {
  const page = await site.open({ shape: { len: 8 }, mask: "full", cell: [2, 5] });
  await settled(page);
  const why = page.locator(".why");
  await why.getByRole("heading", { name: "May read" }).waitFor();
  const some = await ink(page, "some");
  await say(page, "causal & ");
  await veil(page).getByText("The first mask text has an error. The picture shows the last mask text without an error.").waitFor();
  await why.getByText("A mask text has an error").waitFor();
  assert.equal(await why.locator(".why-cell").count(), 0);
  assert.ok(!(await onScreen(page, 2, 4)).some((colour) => near(colour, some)), "the colour of `some`");
  await say(page, "causal");
  await why.getByRole("heading", { name: "May not read" }).waitFor();
  await veil(page).waitFor({ state: "hidden" });
  await page.finish();
});

test("the explanation changes with the head and the second mask", async () => {
  const page = await site.open({ shape: { len: 8, heads: 2 }, mask: "heads(0: full, 1: causal)", cell: [2, 5] });
  await settled(page);
  const why = page.locator(".why");
  await why.getByRole("heading", { name: "May read" }).waitFor();
  await page.locator(".steppers").getByLabel("Head", { exact: true }).fill("1");
  await why.getByRole("heading", { name: "May not read" }).waitFor();
  await page.getByRole("button", { name: "Compare with another mask" }).click();
  await say(page, "full", "Mask compared with");
  await why.getByText("The other mask allows this cell.").waitFor();
  await say(page, "none", "Mask compared with");
  await why.getByText("The other mask denies this cell.").waitFor();
  await page.getByRole("button", { name: "End", exact: true }).click();
  await why.getByText("The other mask").waitFor({ state: "detached" });
  await page.finish();
});

for (const len of [24, 1 << 20, 4_000_000]) {
  test(`numbers of rows and keys are whole: ${len} tokens`, async () => {
    const page = await site.open({ shape: { len }, mask: "causal" });
    await settled(page);
    const cut = await page.evaluate(async (last) => {
      const { picture } = document.querySelector(".picture");
      const canvas = picture.element.querySelector("canvas");
      const context = canvas.getContext("2d");
      const draw = context.fillText.bind(context);
      const drawn = [];
      context.fillText = (words, x, y) => {
        const { actualBoundingBoxLeft: left, actualBoundingBoxRight: right } = context.measureText(words);
        drawn.push({ words, left: x - left, right: x + right });
        draw(words, x, y);
      };
      const frames = () => new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
      picture.redraw();
      await frames();
      picture.jump({ q: last, k: last });
      await frames();
      const width = canvas.clientWidth;
      return { count: drawn.length, wrong: drawn.filter(({ words, left, right }) => left < 0 || right > width || words.includes("…")) };
    }, len - 1);
    assert.ok(cut.count > 10, `${cut.count} numbers`);
    assert.deepEqual(cut.wrong, []);
    await page.finish();
  });
}
