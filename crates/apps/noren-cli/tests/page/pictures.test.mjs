// Compares screenshots of the page with the pictures in `shots`; `UPDATE=1` writes these and those of the README again.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { explorer, rested, root, settled } from "./explorer.mjs";

const SHOTS = join(import.meta.dirname, "shots");
const DOCS = join(root, "docs/pictures");
const UPDATE = process.env.UPDATE === "1";
const LIMIT = 300 * 1024; // maximum bytes of a picture
const FAR = 48; // minimum difference of a colour channel that counts
const SHARE = 0.02; // maximum share of different pixels: fonts are drawn slightly differently on each machine

let site;
before(async () => (site = await explorer()));
after(() => site?.close());

/** Returns the share of pixels that differ. A page draws both pictures to compare them. */
const differing = (page, pictures) =>
  page.evaluate(
    async ([far, ...sources]) => {
      const [a, b] = await Promise.all(
        sources.map(async (source) => {
          const image = Object.assign(new Image(), { src: `data:image/png;base64,${source}` });
          await image.decode();
          const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
          canvas.drawImage(image, 0, 0);
          return canvas.getImageData(0, 0, image.width, image.height);
        }),
      );
      if (a.width !== b.width || a.height !== b.height) return 1;
      let count = 0;
      for (let i = 0; i < a.data.length; i += 4) {
        if ([0, 1, 2].some((channel) => Math.abs(a.data[i + channel] - b.data[i + channel]) > far)) count += 1;
      }
      return count / (a.width * a.height);
    },
    [FAR, ...pictures.map((png) => png.toString("base64"))],
  );

const MASK = "sliding(6) | causal & keys(0..2) | spans([9..14])";
const README = {
  mask: { state: { mask: MASK, shape: { len: 24 }, cell: [11, 13] } },
  compare: { state: { mask: MASK, other: "sliding(8) | causal & keys(0..1)", shape: { len: 24 }, cell: [12, 5] }, theme: "dark" },
  million: {
    state: {
      mask: "causal & documents | causal & keys(0..64) | sliding(4096)",
      shape: { len: 1 << 20 },
      cell: [49_152, 24_576],
      facts: { documents: [9216, 24_576, 5120, 14_336, 7168, 2048, 12_288, 973_824] },
      camera: [38_000, 37_000, 78_000],
    },
  },
  flow: {
    state: {
      view: "flow",
      shape: { len: 24 },
      facts: { labels: { pii: [6, 7] } },
      flow: {
        layers: ["sliding(3)", "sliding(3)", "sliding(3) | keys(0)"],
        depth: 6,
        token: 16,
        policy: "deny: label(pii) -> token(16)",
        violation: 0,
      },
    },
    ready: (page) => page.locator(".flow-verdict", { hasText: "Broken" }).waitFor(),
  },
  text: {
    state: { view: "text", text: { hide: ["email", "phone", "card"] } },
    ready: (page) => page.locator(".text-proof.good").waitFor({ timeout: 60_000 }),
    height: 1240,
  },
  doctor: {
    state: { view: "doctor" },
    ready: async (page) => {
      await page.locator('[data-example="wide"]').click();
      await settled(page, ".doctor-picture .picture");
    },
    height: 1180,
  },
  learn: {
    state: { view: "learn", learn: { lesson: "private", answer: "causal - (keys(3) & queries(5..))" } },
    ready: async (page) => {
      await page.getByRole("button", { name: "Check" }).click();
      await page.locator(".learn-feedback.wrong").waitFor();
      await settled(page);
    },
  },
  row: {
    state: { view: "learn", learn: { lesson: "scores", answer: "!keys(1)" } },
    ready: async (page) => {
      await page.locator(".row-panel svg").waitFor();
      await page.locator(".learn-row").scrollIntoViewIfNeeded();
      await page.locator(".row-panel .row-right").scrollIntoViewIfNeeded();
    },
  },
};
const ready = async (page) => {
  await settled(page);
  await page.locator(".figures-line", { hasText: "allowed" }).waitFor();
};
const OTHERS = {
  tiles: { state: { mask: "sliding(96) | causal & keys(0..16)", shape: { len: 512 }, plan: true } },
  sides: {
    state: { mask: "causal & documents", other: "causal", sides: true, shape: { len: 32 }, facts: { documents: [12, 9, 11] } },
  },
  error: {
    state: { mask: "causal & slidin(3)", shape: { len: 24 } },
    ready: (page) => page.locator(".editor-error .says").first().waitFor(),
  },
  lesson: { state: { view: "learn", learn: { lesson: "heads" } }, ready: settled, theme: "dark", width: 390, height: 844 },
  numbers: {
    state: { mask: "causal & sliding(5)", shape: { len: 12 }, cell: [7, 5], row: { open: true } },
    ready: async (page) => {
      await settled(page);
      await page.locator(".row-panel svg").waitFor();
      await page.locator(".row-section").evaluate((section) => section.scrollIntoView({ block: "start" }));
    },
  },
  small: { state: { mask: MASK, shape: { len: 24 } }, width: 360, height: 780 },
};

for (const [name, { state, theme = "light", width = 1440, height = 900, ready: drawn = ready }] of Object.entries({
  ...README,
  ...OTHERS,
})) {
  test(`looks as it should: ${name}`, async () => {
    const page = await site.open(state, { theme, width, height });
    await drawn(page);
    await rested(page);
    const shot = await page.screenshot();
    const file = join(SHOTS, `${name}.png`);
    if (UPDATE) {
      mkdirSync(SHOTS, { recursive: true });
      writeFileSync(file, shot);
      if (name in README) writeFileSync(join(DOCS, `explorer-${name}.png`), shot);
    }
    assert.ok(existsSync(file), `${file} is missing: UPDATE=1 writes it`);
    assert.ok(statSync(file).size < LIMIT, `${file} is larger than ${LIMIT} bytes`);
    const share = await differing(page, [shot, readFileSync(file)]);
    if (share > SHARE) writeFileSync(join(SHOTS, `${name}.new.png`), shot);
    assert.ok(share <= SHARE, `${(share * 100).toFixed(1)} % of the pixels differ from ${file}; what was drawn is beside it`);
    await page.finish();
  });
}
