// Text typed into the text view stays out of addresses, unless the user requests a link with it.

import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { heldInWords } from "../../../noren-explorer/page/js/text/link.js";
import { violations } from "./axe.mjs";
import { explorer } from "./explorer.mjs";

let site;
before(async () => (site = await explorer()));
after(() => site?.close());

const WAIT = { timeout: 60_000 };
const SECRETS = ["Longbourn", "Lucas"];
const TEXT = "Mr Lucas took Longbourn in the spring.";
const answered = (page) => page.waitForFunction(() => {
  const view = document.querySelector(".text");
  return view && !view.classList.contains("waiting") && document.querySelector(".text-word");
}, null, WAIT);

/**
 * Collects every address that the page has, writes or shows as a link, and every address of its requests. `left` is true if the browser has
 * left the page meanwhile: then only addresses of documents and requests are returned.
 */
async function addresses(page) {
  const seen = [];
  page.on("framenavigated", (frame) => seen.push(frame.url()));
  page.on("request", (request) => seen.push(request.url()));
  await page.evaluate(() => {
    window.written = [];
    for (const name of ["pushState", "replaceState"]) {
      const write = history[name].bind(history);
      history[name] = (data, title, url) => {
        window.written.push(String(url), JSON.stringify(data));
        write(data, title, url);
      };
    }
  });
  const here = async () => [
    ...(await page.evaluate(() => [...window.written, ...[...document.querySelectorAll("a")].map((link) => link.href)])),
    ...(await page.evaluate(() => [...Object.values(localStorage), ...Object.values(sessionStorage)])),
  ];
  return async ({ left = false } = {}) => [...seen, page.url(), ...(left ? [] : await here())];
}

/** Returns a text without the escapes of addresses. A text that is no part of an address stays. */
const decoded = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

const without = (all) => {
  for (const secret of SECRETS) assert.deepEqual(all.filter((one) => decoded(one).includes(secret)), []);
};

test("typed text is in no address, history or store, and stays after another view", async () => {
  const page = await site.open({ view: "text" });
  await answered(page);
  const all = await addresses(page);
  const text = page.getByLabel("Text", { exact: true });
  const words = page.getByLabel("Other words to hide, separated by commas");
  await text.fill(TEXT);
  await words.fill("Lucas");
  await page.locator(".text-word.hidden-word", { hasText: "Lucas" }).waitFor(WAIT);
  await page.getByRole("button", { name: "Layer 1", exact: true }).click();
  await page.waitForFunction(() => location.hash.includes("'layer':1"));
  await page.getByRole("navigation").getByText("Mask", { exact: true }).click();
  await page.locator(".picture").first().waitFor();
  await page.getByRole("navigation").getByText("Text", { exact: true }).hover();
  await page.mouse.down();
  await page.mouse.up();
  await answered(page);
  assert.equal(await text.inputValue(), TEXT);
  assert.equal(await words.inputValue(), "Lucas");
  await page.goBack();
  await page.goBack();
  await answered(page);
  assert.equal(await text.inputValue(), TEXT);
  without(await all());
  await page.finish();
});

test("a typed secret is in no address, history state, store, title or log", async () => {
  const page = await site.open({ view: "text" });
  await answered(page);
  const all = await addresses(page);
  const text = page.getByLabel("Text", { exact: true });
  await text.fill("");
  await text.pressSequentially(TEXT);
  await page.getByLabel("Other words to hide, separated by commas").pressSequentially("Lucas");
  const proof = page.locator(".text-proof-of");
  await proof.locator(".good").waitFor(WAIT);
  // an error of the server, a download, other views and back
  await page.getByRole("textbox", { name: "Mask", exact: true }).fill("causal & slidin(4)");
  await page.locator(".text-ask .editor-error").waitFor(WAIT);
  await page.getByRole("textbox", { name: "Mask", exact: true }).fill("");
  await proof.locator(".good").waitFor(WAIT);
  await Promise.all([page.waitForEvent("download"), proof.getByRole("button", { name: "Download proof" }).click()]);
  for (const view of ["Flow", "Doctor", "Learn", "Text"]) {
    await page.getByRole("navigation").getByText(view, { exact: true }).click();
    await page.waitForFunction((name) => document.title.startsWith(name), view);
  }
  await answered(page);
  const kept = () =>
    page.evaluate(async () => {
      const databases = await indexedDB.databases();
      const requests = [];
      for (const name of await caches.keys()) requests.push(...(await (await caches.open(name)).keys()).map(({ url }) => url));
      const stores = [localStorage, sessionStorage].flatMap((store) => Object.entries(store).flat());
      return [location.href, document.title, document.cookie, JSON.stringify(history.state), window.name, ...stores, ...databases.map(({ name }) => name), ...requests];
    });
  without(await kept());
  without(await all());
  // every entry of the history
  const entries = await page.evaluate(() => history.length);
  for (let i = 1; i < Math.min(entries, 8); i += 1) {
    await page.goBack().catch(() => null);
    if (!page.url().startsWith(site.address)) break;
    without([page.url(), ...(await kept())]);
  }
  without(await all({ left: true }));
  const session = await page.context().newCDPSession(page);
  const { entries: history } = await session.send("Page.getNavigationHistory");
  without(history.flatMap(({ url, userTypedURL, title }) => [url, userTypedURL, title]));
  without([site.output()]);
  assert.match(site.output(), /127\.0\.0\.1/); // the output of the server is read
  await page.finish();
});

test("the browser stores no typed text on disk: neither in its cache nor in its history", async () => {
  const own = await explorer();
  const marker = "Pemberley";
  try {
    const page = await own.open({ view: "text" });
    await answered(page);
    await page.getByLabel("Text", { exact: true }).fill(`${TEXT} He lives at ${marker}.`);
    await page.getByLabel("Other words to hide, separated by commas").fill(marker);
    await page.locator(".text-word.hidden-word", { hasText: marker }).waitFor(WAIT);
    await page.getByRole("navigation").getByText("Mask", { exact: true }).click();
    await page.locator(".picture").first().waitFor();
    await page.goBack();
    await answered(page);
    await page.reload();
    await answered(page);
    await page.finish();
    await own.stop();
    const paths = readdirSync(own.profile, { recursive: true }).map((path) => join(own.profile, path)).filter((path) => statSync(path, { throwIfNoEntry: false })?.isFile());
    assert.ok(paths.length > 20, `${paths.length} files`);
    let history = false;
    for (const path of paths) {
      const bytes = readFileSync(path);
      history ||= bytes.includes(new URL(own.address).host);
      for (const word of [marker, ...SECRETS])
        for (const encoding of ["utf8", "utf16le"]) assert.ok(!bytes.includes(Buffer.from(word, encoding)), `${path} contains ${word}`);
    }
    assert.ok(history, "the history of the browser is among the files");
    for (const word of [marker, ...SECRETS]) assert.ok(!own.output().includes(word), "the log of the server");
  } finally {
    await own.close();
  }
});

test("a link contains the text only on request, and its contents are listed", async () => {
  const page = await site.open({ view: "text" });
  await answered(page);
  await page.getByLabel("Text", { exact: true }).fill(TEXT);
  await page.getByLabel("Other words to hide, separated by commas").fill("Lucas");
  await page.locator(".text-word.hidden-word", { hasText: "Lucas" }).waitFor(WAIT);
  const all = await addresses(page);
  await page.getByRole("button", { name: "Link to this view" }).click();
  const dialog = page.getByRole("dialog");
  const link = dialog.getByLabel("Link", { exact: true });
  without([await link.inputValue()]);
  assert.match(await dialog.getByRole("status").innerText(), /does not hold the text or the words to hide/);
  await dialog.getByLabel("Include the text and the words to hide in the link").check();
  assert.match(await dialog.getByRole("status").innerText(), /holds the whole text \(38 characters\), 1 word to hide/);
  assert.deepEqual(await violations(page), []);
  const address = await link.inputValue();
  for (const secret of SECRETS) assert.ok(address.includes(secret), address);
  without(await all());
  await page.finish();
  // A page opened by the link shows the text and the words, and removes them from its address at once.
  const other = await site.open(new URL(address).hash.slice(1));
  await answered(other);
  assert.equal(await other.getByLabel("Text", { exact: true }).inputValue(), TEXT);
  assert.equal(await other.getByLabel("Other words to hide, separated by commas").inputValue(), "Lucas");
  without([other.url()]);
  await other.finish();
});

test("the contents of a link are described", () => {
  const settings = { text: "abc", words: ["a", "b"], hide: ["email"], mask: " causal " };
  assert.equal(heldInWords(settings, false),
    "The link holds the layer and head, the kinds to hide (email) and the mask. It does not hold the text or the words to hide.");
  assert.match(heldInWords(settings, true), /^The link holds the whole text \(3 characters\), 2 words to hide, the layer and head, .* Everyone with the link/);
  assert.match(heldInWords({ ...settings, words: [], hide: [], mask: "" }, true), /^The link holds the whole text \(3 characters\) and the layer and head\./);
});

test("no proof of another text is shown while this one is checked", async () => {
  const page = await site.open({ view: "text", text: { text: TEXT, words: ["Lucas"] } });
  await page.locator(".text-proof.good").waitFor(WAIT);
  let release = null;
  const held = new Promise((free) => (release = free));
  await page.route("**/api/text", async (route) => {
    await held;
    await route.continue();
  });
  await page.getByLabel("Text", { exact: true }).fill(`${TEXT} So did Lucas’s sisters.`);
  const proof = page.locator(".text-proof-of");
  await proof.getByText("Checking …").waitFor();
  assert.equal(await page.locator(".text-proof").count(), 0);
  release();
  await page.locator(".text-proof").first().waitFor(WAIT);
  await page.finish();
});
