// What leaves the page: copies of the mask, links, saved pages, and certificates for `noren verify`.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { binary, explorer, files, say, settled } from "./explorer.mjs";

let [site, folder] = [];
before(async () => {
  folder = mkdtempSync(join(tmpdir(), "noren-share-"));
  site = await explorer();
  // Gives the page access to the clipboard, for which the browser otherwise needs the consent of the user.
  await site.context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: new URL(site.address).origin });
});
after(async () => {
  await site?.close();
  rmSync(folder, { recursive: true, force: true });
});

const WAIT = { timeout: 60_000 };

/** Chooses an item of the menu of exports. */
async function choose(page, item) {
  await page.getByRole("button", { name: "Export" }).click();
  await page.getByRole("menuitem", { name: new RegExp(`^${item}`) }).click();
}

/** Copies by an item of the menu of exports, and waits until the page reports it. */
async function copy(page, item) {
  await page.evaluate(() => document.querySelectorAll(".toast").forEach((toast) => toast.remove()));
  await choose(page, item);
  await page.locator(".toast", { hasText: "Copied." }).waitFor();
}

/** Returns the types of the clipboard's content, and its text. */
const clipboard = (page) =>
  page.evaluate(async () => {
    const [item] = await navigator.clipboard.read();
    const text = item.types.includes("text/plain") ? await (await item.getType("text/plain")).text() : null;
    return { types: [...item.types], text };
  });

/** Saves a download as a file, and returns the path. An error that the page shows in place of the download fails at once. */
async function downloaded(page, click) {
  const refused = page.locator(".toast.error").waitFor({ timeout: 0 }).then(() => page.locator(".toast.error").innerText(), () => "closed");
  const [download] = await Promise.all([Promise.race([page.waitForEvent("download", { timeout: 90_000 }), refused]), click()]);
  assert.equal(typeof download, "object", download);
  const path = join(folder, download.suggestedFilename());
  await download.saveAs(path);
  return path;
}

/** Returns the identity of the shown mask. */
const identity = (page) =>
  page.evaluate(async () => {
    const [{ state }, { masks }] = await Promise.all([import("./js/base/state.js"), import("./js/base/api.js")]);
    return (await masks(state.scene())).id;
  });

/** Returns the export of the shown mask as the server gives it. */
const exported = async (page, query) =>
  page.evaluate(async (path) => (await fetch(path)).text(), `api/masks/${await identity(page)}/export?${query}`);

const SCENE = { shape: { len: 24, batch: 2 }, mask: "causal & documents & !keys(label=\"it's\")", facts: { documents: [[10, 14], [24]], labels: { "it's": [3] } } };

test("the picture is copied as PNG and as SVG", async () => {
  const page = await site.open({ ...SCENE, at: [1, 0] });
  await settled(page);
  await copy(page, "Copy as PNG");
  // The browser writes the PNG again, so its pixels are compared.
  const equal = await page.evaluate(async (id) => {
    const pixels = async (blob) => {
      const image = await createImageBitmap(blob);
      const drawn = new OffscreenCanvas(image.width, image.height).getContext("2d");
      drawn.drawImage(image, 0, 0);
      return { size: [image.width, image.height], data: [...drawn.getImageData(0, 0, image.width, image.height).data] };
    };
    const [item] = await navigator.clipboard.read();
    const copied = await pixels(await item.getType("image/png"));
    const given = await pixels(await (await fetch(`api/masks/${id}/export?as=png&batch=1&head=0`)).blob());
    return copied.size.join() === given.size.join() && copied.data.join() === given.data.join() && copied.data.length > 10_000;
  }, await identity(page));
  assert.ok(equal, "the copied pixels are those of the download");

  await copy(page, "Copy as SVG");
  const { types, text } = await clipboard(page);
  assert.ok(types.includes("image/svg+xml"), types.join());
  assert.equal(text, await exported(page, "as=svg&batch=1&head=0"));
  const drawn = await page.evaluate(async () => {
    const [item] = await navigator.clipboard.read();
    return (await item.getType("image/svg+xml")).text();
  });
  assert.match(drawn, /<svg[\s\S]*<path|<svg[\s\S]*<rect/);
  // The picture in the clipboard has its colours, which are in a style sheet of the source.
  const ink = /\.nrn-text\{fill:(#\w+)\}/.exec(text)[1];
  assert.ok(drawn.includes(`fill="${ink}"`) || drawn.includes(`fill="rgb(${[1, 3, 5].map((at) => parseInt(ink.slice(at, at + 2), 16)).join(", ")})"`), drawn.slice(0, 3000));
  await page.finish();
});

test("Markdown has the picture and a command that draws the same picture", async () => {
  for (const [state, words] of [
    [{ ...SCENE, at: [1, 0] }, /^```text\ncausal & documents - keys\(label="it's"\)|^```text\ncausal & documents & !keys/],
    [{ shape: { past: 12, new: 4 }, mask: "sliding(5)" }, /--query-offset 12/],
    [{ shape: { len: 64 }, mask: "causal", camera: [20, 20, 12] }, /--rows \d+\.\.\d+ --keys \d+\.\.\d+/],
    [{ shape: { len: 100 }, mask: "causal & chunk(8)", plan: true }, /--tiles/],
  ]) {
    const page = await site.open(state);
    await settled(page);
    await copy(page, "Copy as Markdown");
    const { types, text } = await clipboard(page);
    assert.deepEqual(types, ["text/plain"]);
    assert.match(text, words);
    const [, picture, command] = /^```text\n([\s\S]*?)\n```\n\n```sh\n(noren show .*)\n```\n$/.exec(text) ?? [];
    assert.ok(command, text);
    const printed = execFileSync("bash", ["-c", command.replace(/^noren/, binary)], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
    assert.equal(printed.trimEnd(), picture);
    await page.finish();
  }
});

test("a comparison is copied with the command that compares", async () => {
  const page = await site.open({ shape: { len: 12 }, mask: "sliding(4)", other: "sliding(5)" });
  await settled(page);
  await page.locator(".difference").getByText("allowed only by the second mask").waitFor();
  await copy(page, "Copy as Markdown");
  const { text } = await clipboard(page);
  const [, command] = /```sh\n(noren diff .*)\n```/.exec(text) ?? [];
  assert.equal(command, "noren diff 'sliding(4)' 'sliding(5)' --len 12");
  assert.equal(spawnSync("bash", ["-c", command.replace(/^noren/, binary)]).status, 1); // the masks differ
  await page.finish();
});

test("a notebook cell is copied", async () => {
  const page = await site.open(SCENE);
  await settled(page);
  await copy(page, "Copy as notebook cell");
  const { text } = await clipboard(page);
  assert.match(text, /^import noren as nr\n\nspec = nr\.Spec\(.*\)\nbound = spec\.mask\.bind\(nr\.Shape\(24, 24, batch=2\), nr\.Facts\.from_json\(.*\)\)\nbound\n$/);
  assert.equal(text, await exported(page, "as=notebook"));
  await page.finish();
});

test("a clipboard that the browser denies is reported, and so is an export that the server refuses", async () => {
  const page = await site.open(SCENE);
  await settled(page);
  await page.evaluate(() => (navigator.clipboard.write = () => Promise.reject(new Error("denied"))));
  await choose(page, "Copy as Markdown");
  await page.locator(".toast.error", { hasText: "The clipboard is not available: choose a download instead." }).waitFor();
  await page.finish();
  const other = await site.open(SCENE);
  await settled(other);
  await other.route("**/export?**", (route) => route.fulfill({ status: 200, headers: { "X-Noren-Status": "400" }, body: '{"error": {"message": "no picture"}}' }));
  await choose(other, "Copy as Markdown");
  await other.locator(".toast.error", { hasText: "no picture" }).waitFor();
  await other.finish();
});

test("a reload and another browser with another server restore the state", async () => {
  const state = { ...SCENE, other: "causal & documents", sides: true, at: [1, 0], cell: [7, 3], camera: [8, 8, 16] };
  const page = await site.open(state);
  await settled(page);
  await page.locator(".why-cell").waitFor();
  /** Returns what a user sees: texts, facts, batch row, pinned cell, comparison and visible part. */
  const seen = async (of) => {
    await settled(of);
    await of.locator(".difference").getByText("only by the").first().waitFor();
    await of.locator(".why-cell").waitFor();
    return of.evaluate(() => ({
      masks: [...document.querySelectorAll(".editor textarea")].map((text) => text.value),
      facts: document.querySelector(".ask").innerText,
      why: document.querySelector(".why").innerText,
      difference: document.querySelector(".difference").innerText,
      camera: document.querySelector(".picture").picture.camera.place,
      hash: location.hash,
      pictures: [...document.querySelectorAll(".picture-frame")].filter((frame) => !frame.hidden).length,
    }));
  };
  const first = await seen(page);
  assert.equal(first.pictures, 2);
  await page.reload();
  assert.deepEqual(await seen(page), first);
  const elsewhere = await explorer();
  try {
    const copy = await elsewhere.open(new URL(page.url()).hash.slice(1));
    assert.deepEqual(await seen(copy), first);
    await copy.finish();
  } finally {
    await elsewhere.close();
  }
  await page.finish();
});

/** Returns the exit code and the output of `noren verify` for a file. */
function verified(path) {
  const { status, stdout, stderr } = spawnSync(binary, ["verify", path], { encoding: "utf8" });
  return [status, stdout + stderr];
}

test("a certificate of a flow is downloaded, and noren verify accepts it", async () => {
  const flow = { layers: ["causal & documents", "sliding(3) & documents"], depth: 5, policy: "deny: document(i) -> document(j)" };
  const page = await site.open({ view: "flow", shape: { len: 20 }, facts: { documents: [8, 12] }, flow });
  const button = page.getByRole("button", { name: "Download certificate" });
  await page.locator(".flow-verdict.good").waitFor(WAIT);
  const path = await downloaded(page, () => button.click());
  assert.match(path, /certificate\.json$/);
  let [status, output] = verified(path);
  assert.equal(status, 0, output);
  assert.match(output, /verified: .*[\s\S]*20 tokens, 5 layers[\s\S]*holds/);
  // A changed certificate is refused.
  writeFileSync(path, readFileSync(path, "utf8").replace("sliding(3)", "sliding(4)"));
  [status] = verified(path);
  assert.equal(status, 2);
  // A broken policy has a certificate too.
  await page.getByLabel("Denied pairs of tokens").fill("deny: token(0) -> token(5)");
  await page.locator(".flow-verdict.bad").waitFor(WAIT);
  [status, output] = verified(await downloaded(page, () => button.click()));
  assert.equal(status, 1, output);
  assert.match(output, /broken/);
  // Without rules there is nothing to certify.
  await page.getByLabel("Denied pairs of tokens").fill("");
  await button.waitFor({ state: "hidden" });
  await page.finish();
});

test("the proof of a text is downloaded without the text, and noren verify accepts it", async () => {
  const text = "Mr Bingley wrote to ann@longbourn.example from Netherfield.";
  const page = await site.open({ view: "text", text: { text, words: ["Bingley"], hide: ["email"] } });
  const proof = page.locator(".text-proof-of");
  await proof.locator(".good").waitFor(WAIT);
  const path = await downloaded(page, () => proof.getByRole("button", { name: "Download proof" }).click());
  assert.match(path, /proof\.json$/);
  const content = readFileSync(path, "utf8");
  for (const word of ["Bingley", "longbourn", "Netherfield", "wrote"]) assert.ok(!content.includes(word), word);
  const [status, output] = verified(path);
  assert.equal(status, 0, output);
  assert.match(output, /deny: label\(private\) -> output[\s\S]*holds/);
  await page.finish();
});

/** The masks that are saved as web pages, of 4,096 tokens: regular ones, one with facts, heads, and scattered cells. The last takes longest. */
const LARGE = [
  { mask: "causal" },
  { mask: "sliding(256) | global(0..16) | stride(64)" },
  { mask: "causal & documents & padding", facts: { documents: [[610, 1200, 90, 744, 318, 1000]], lengths: [3962] } },
  { mask: "heads(0: causal & chunk(512), else: sliding(128)) - keys(7)", shape: { heads: 2 } },
  { mask: "window(left=64, right=64) | global(0..64) | random_blocks(64, 3, 3)" },
  { mask: "random(0.002, 1) | sliding(2)" },
  { mask: "causal & (sliding(256) | random(0.05, 7)) - !random(0.9, 2)", shape: { len: 2048 } },
];

test("saved pages of 4,096 tokens are small, open from disk, and give the reasons of the page for random cells", async () => {
  const browser = await files();
  let seed = 7;
  const below = (end) => {
    seed = (seed * 48271) % 2147483647;
    return seed % end;
  };
  let cells = 0;
  const sizes = [];
  try {
    for (const { mask, shape = {}, facts = {} } of LARGE) {
      const sized = { len: 4096, heads: 1, ...shape };
      const page = await site.open({ mask, shape: sized, facts });
      await settled(page);
      const path = await downloaded(page, () => choose(page, "Save as web page"));
      sizes.push(statSync(path).size);
      assert.ok(sizes.at(-1) < 300_000, `${mask}: ${sizes.at(-1)} bytes`);
      const saved = await browser.open(path);
      const id = await identity(page);
      const chosen = Array.from({ length: 40 }, (_, i) => {
        const [head, q] = [below(sized.heads), below(sized.len)];
        return [head, q, i % 2 ? below(sized.len) : Math.max(0, q - below(200))];
      });
      const expected = await page.evaluate(
        ([of, all]) => Promise.all(all.map(async ([head, q, k]) => (await fetch(`api/masks/${of}/explain?q=${q}&k=${k}&head=${head}`)).json())),
        [id, chosen],
      );
      const found = await saved.evaluate((all) => all.map(([head, q, k]) => document.querySelector("#cells").mask.explain(0, head, q, k).root), chosen);
      const flat = (part) => [part.allowed, part.mask, part.why, ...(part.parts ?? []).map(flat)];
      for (const [i, cell] of chosen.entries()) assert.deepEqual(flat(found[i]), flat(expected[i].root), `${mask}: head, query, key ${cell}`);
      cells += chosen.length;
      // The code of each library is that of the panel "Code".
      const codes = await saved.locator("details").evaluateAll((all) => all.map((one) => [one.querySelector("summary").textContent, one.querySelector("code")?.textContent ?? null]));
      const wanted = await page.evaluate(async (of) => {
        const answer = async (to) => (await fetch(`api/masks/${of}/code?to=${to}`)).json();
        const { targets } = await (await fetch("api/language")).json();
        const all = await Promise.all(targets.map(async ({ name, title }) => [title, (await answer(name)).code]));
        return all.filter(([, code]) => code !== null).map(([title, code]) => [title, code.length > 8192 ? null : code.trimEnd()]);
      }, id);
      assert.ok(codes.length >= 2);
      assert.deepEqual(codes, wanted, `${mask}: the code`);
      await saved.finish();
      await page.finish();
    }
  } finally {
    await browser.close();
  }
  console.log(`saved pages: ${LARGE.length} masks, ${Math.min(...sizes)} to ${Math.max(...sizes)} bytes, ${cells} cells`);
});
