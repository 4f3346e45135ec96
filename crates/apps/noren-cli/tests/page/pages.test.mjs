// Masks saved as web pages: the pages open from disk, and their reasons are those of the library for every cell.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { themed } from "./axe.mjs";
import { binary, files, root } from "./explorer.mjs";

let [browser, folder] = [];
before(async () => {
  folder = mkdtempSync(join(tmpdir(), "noren-pages-"));
  browser = await files();
});
after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
});

const noren = (...words) => execFileSync(binary, words, { encoding: "utf8" });

/** Saves a mask as a page with `noren show`, and opens the page. */
async function saved(words, look) {
  const path = join(folder, "mask.html");
  noren("show", ...words, "-o", path);
  assert.ok(statSync(path).size < 300_000);
  return browser.open(path, look);
}

/** Returns the reasons of a cell as `noren explain` prints them: `+ mask: reason` in the order of the tree. */
const explained = (words, [q, k], batch = 0, head = 0) =>
  noren("explain", ...words, "--at", `${batch},${head},${q},${k}`)
    .split("\n")
    .slice(1)
    .map((line) => line.replace(/^[ │├└]+/, ""))
    .filter((line) => /^[+-] /.test(line));

/** Returns the reasons that the panel shows, in the same form. */
const shown = (page) =>
  page.evaluate(() =>
    [...document.querySelectorAll("#why li")].map((item) => {
      const [sign, mask] = item.querySelector("div").childNodes;
      return `${sign.className === "yes" ? "+" : "-"} ${mask.textContent}: ${item.querySelector("p").innerHTML.replaceAll(/<\/?code>/g, "`")}`;
    }),
  );

const unescaped = (lines) =>
  lines.map((line) => line.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&").replaceAll(/&(quot|#34);/g, '"'));

/** Returns the point of the middle of a cell on the screen. */
const point = (page, q, k) =>
  page.evaluate(
    ([row, key]) => {
      const canvas = document.querySelector("#cells");
      const { view, left, top } = canvas.mask;
      const box = canvas.getBoundingClientRect();
      return { x: box.left + left + (key - view.k + 0.5) * view.across, y: box.top + top + (row - view.q + 0.5) * view.down };
    },
    [q, k],
  );

test("every cell of every atom, stored case and of 200 random masks has the library's reasons", { timeout: 900_000 }, async () => {
  const from = process.env.NOREN_PAGES ?? join(folder, "pages");
  if (!process.env.NOREN_PAGES) {
    // `cargo run` would wait for other builds, so the example beside the program is used if `cargo test` has built it.
    const built = join(dirname(binary), "examples/pages");
    const [program, words] = existsSync(built) ? [built, []] : ["cargo", ["run", "-q", "--release", "--example", "pages", "--"]];
    execFileSync(program, [...words, from], { cwd: root, stdio: "inherit" });
  }
  const names = readdirSync(from).filter((name) => name.endsWith(".html"));
  assert.ok(names.length >= 400, `${names.length} pages`);
  let [cells, page] = [0, null];
  for (const name of names) {
    const expected = readFileSync(join(from, name.replace("html", "json")), "utf8");
    page = await browser.open(join(from, name), {}, page);
    // A string, because Playwright would send a message with a part for each number.
    const [count, wrong] = await page.evaluate((json) => {
      const { shape: [batches, heads, queries, keys], reasons, cells: numbers, mask: text } = JSON.parse(json);
      const { mask } = document.querySelector("#cells");
      const flat = (part) => [[part.allowed, part.mask, part.why], ...part.parts.flatMap(flat)];
      let at = 0;
      for (let batch = 0; batch < batches; batch += 1)
        for (let head = 0; head < heads; head += 1)
          for (let q = 0; q < queries; q += 1)
            for (let k = 0; k < keys; k += 1) {
              const { root: part, queryPosition, keyPosition } = mask.explain(batch, head, q, k);
              const found = JSON.stringify([queryPosition, keyPosition, flat(part)]);
              const right = JSON.stringify(reasons[numbers[at]]);
              if (found !== right) return [at, { text, cell: [batch, head, q, k], found, right }];
              at += 1;
            }
      return [at, at === numbers.length ? null : { text, at }];
    }, expected);
    assert.equal(wrong, null, `${name}: ${JSON.stringify(wrong, null, 1)}`);
    cells += count;
  }
  await page.finish();
  console.log(`pages: ${names.length} masks, ${cells} cells`);
});

const DOCUMENTS = ["causal & documents([610, 1200, 90, 744, 318, 1134])", "--len", "4096"];
const BATCH = ["heads(0..2: sliding(4), 2..: causal) & padding", "--heads", "4", "--lengths", "13,9", "--side", "left"];

for (const theme of ["light", "dark"]) {
  test(`the mouse and the keyboard show the reasons of noren explain (${theme})`, async () => {
    const page = await saved(DOCUMENTS, { theme, height: 1200 });
    for (const [q, k] of [[100, 90], [2900, 1640], [4085, 4085], [4, 4], [4, 4085]]) {
      const { x, y } = await point(page, q, k);
      await page.mouse.move(x, y);
      const [query, key] = (await page.locator("#why p").first().innerText()).match(/[\d,]+/g).map((n) => Number(n.replaceAll(",", "")));
      assert.ok(Math.abs(query - q) <= 4 && Math.abs(key - k) <= 4, `${query} ${key}`);
      assert.deepEqual(unescaped(await shown(page)), explained(DOCUMENTS, [query, key]));
    }
    // the keyboard alone: the last cell under the pointer is the start
    await page.mouse.move(2, 2);
    await page.locator("#cells").focus();
    for (const press of ["Home", "PageUp", "ArrowDown", "ArrowDown", "ArrowRight", "Shift+ArrowDown", "+", "+", "Shift+ArrowRight"])
      await page.keyboard.press(press);
    assert.match(await page.locator("#why").innerText(), /query 18 → key 17/);
    assert.deepEqual(unescaped(await shown(page)), explained(DOCUMENTS, [18, 17]));
    assert.match(await page.locator("#announced").innerText(), /^query 18 may read key 17: every operand allows the cell$/);
    await page.keyboard.press("Enter");
    await page.mouse.move(...Object.values(await point(page, 30, 3)));
    assert.match(await page.locator("#why").innerText(), /May read \(pinned\)\s+query 18 → key 17/);
    await page.keyboard.press("Escape");
    await page.mouse.move(...Object.values(await point(page, 30, 4)));
    assert.match(await page.locator("#why").innerText(), /query 30 → key 4/);
    await page.keyboard.press("0");
    assert.equal(await page.evaluate(() => document.querySelector("#cells").mask.view.k), 0);
    await page.keyboard.press("Tab"); // the canvas does not keep the focus
    assert.notEqual(await page.evaluate(() => document.activeElement.id), "cells");
    await page.finish();
  });
}

test("each batch row and head has its own cells and reasons", async () => {
  const page = await saved(BATCH);
  for (const [batch, head] of [[0, 0], [1, 3], [1, 0]]) {
    await page.getByLabel("Batch row").selectOption(String(batch));
    await page.getByLabel("Head").selectOption(String(head));
    for (const [q, k] of [[11, 2], [11, 10], [3, 3]]) {
      const { x, y } = await point(page, q, k);
      await page.mouse.move(x, y);
      assert.match(await page.locator("#why").innerText(), new RegExp(`query ${q} → key ${k}`));
      assert.deepEqual(unescaped(await shown(page)), explained(BATCH, [q, k], batch, head));
    }
  }
  await page.finish();
});

test("the picture shows the cells", async () => {
  const words = ["causal & documents([3, 5])", "--len", "8"];
  const page = await saved(words);
  const colours = await page.evaluate(() => {
    const canvas = document.querySelector("#cells");
    const { view, left, top } = canvas.mask;
    const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return Array.from({ length: 8 }, (_, q) =>
      Array.from({ length: 8 }, (__, k) => {
        const [x, y] = [left + (k + 0.5) * view.across, top + (q + 0.5) * view.down].map(Math.floor);
        return [...data.slice(4 * (y * width + x)).slice(0, 4)].join() === "47,75,143,255" ? "#" : ".";
      }).join(""),
    );
  });
  const expected = Array.from({ length: 8 }, (_, q) =>
    Array.from({ length: 8 }, (__, k) => (k <= q && k < 3 === q < 3 ? "#" : ".")).join(""),
  );
  assert.deepEqual(colours, expected);
  await page.finish();
});

test("hostile text stays text, and the policy permits no other script, style or connection", async () => {
  const evil = `</script><script>window.evil=1</script><img/src=x/onerror=window.evil=1>&"'`;
  const facts = join(folder, "facts.json");
  const label = "</script><script>window.evil=1</script>";
  writeFileSync(facts, JSON.stringify({ labels: { [label]: [1, "3..5"] } }));
  const words = [`causal - keys(label=${JSON.stringify(label)})`, "--len", "6", "--facts", facts];
  const page = await saved([...words, "--labels-tokens", `${evil} b c </style><b> --><!-- f`]);
  await page.mouse.move(...Object.values(await point(page, 3, 0)));
  assert.match(await page.locator("#why").innerText(), /“<\/style><b>” → key 0 “<\/script><script>window.evil=1/);
  assert.deepEqual(unescaped(await shown(page)), explained(words, [3, 0]));
  assert.match(await page.locator("dd").innerText(), /<\/script>/);
  assert.equal(await page.evaluate(() => window.evil), undefined);
  assert.equal(await page.locator("script").count(), 2);
  // the policy stops a script, a style and a request that are added to the page
  const stopped = await page.evaluate(async () => {
    const stops = [];
    document.addEventListener("securitypolicyviolation", ({ effectiveDirective }) => stops.push(effectiveDirective));
    for (const [tag, text] of [["script", "window.evil = 1"], ["style", "body { color: red }"]])
      document.head.append(Object.assign(document.createElement(tag), { textContent: text }));
    await fetch("https://example.com/").catch(() => {});
    document.body.append(Object.assign(new Image(), { src: "https://example.com/x.png" }));
    for (let tries = 0; tries < 600 && stops.length < 4; tries += 1) await new Promise((done) => setTimeout(done, 100));
    return [stops.map((stop) => stop.split("-")[0]).sort(), window.evil];
  });
  assert.deepEqual(stopped, [["connect", "img", "script", "style"], undefined]);
  await page.close(); // the stopped requests are messages in the console
});

test("axe finds no violation", async () => {
  for (const words of [DOCUMENTS, BATCH])
    for (const width of [1440, 390]) {
      const page = await saved(words, { width, height: 844 });
      await page.locator("#cells").focus();
      await page.keyboard.press("ArrowDown");
      assert.deepEqual(await themed(page), []);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), "nothing is cut off");
      await page.finish();
    }
});
