// Text typed into the text view stays out of addresses, unless the user requests a link with it.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { heldInWords } from "../../../noren-explorer/page/js/text-link.js";
import { violations } from "./axe.mjs";
import { explorer } from "./explorer.mjs";

let site;
before(async () => (site = await explorer()));
after(() => site?.close());

const WAIT = { timeout: 60_000 };
const SECRETS = ["Netherfield", "Bingley"];
const TEXT = "Mr Bingley took Netherfield in the spring.";
const answered = (page) => page.waitForFunction(() => {
  const view = document.querySelector(".text");
  return view && !view.classList.contains("waiting") && document.querySelector(".text-word");
}, null, WAIT);

/** Collects every address that the page has, writes or shows as a link, and every address of its requests. */
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
  return async () => [
    ...seen,
    page.url(),
    ...(await page.evaluate(() => [...window.written, ...[...document.querySelectorAll("a")].map((link) => link.href)])),
    ...(await page.evaluate(() => [...Object.values(localStorage), ...Object.values(sessionStorage)])),
  ];
}

const without = (all) => {
  for (const secret of SECRETS) assert.deepEqual(all.filter((one) => decodeURIComponent(one).includes(secret)), []);
};

test("typed text is in no address, history or store, and stays after another view", async () => {
  const page = await site.open({ view: "text" });
  await answered(page);
  const all = await addresses(page);
  const text = page.getByLabel("Text", { exact: true });
  const words = page.getByLabel("Other words to hide, separated by commas");
  await text.fill(TEXT);
  await words.fill("Bingley");
  await page.locator(".text-word.hidden-word", { hasText: "Bingley" }).waitFor(WAIT);
  await page.getByRole("button", { name: "Layer 1", exact: true }).click();
  await page.waitForFunction(() => location.hash.includes("'layer':1"));
  await page.getByRole("navigation").getByText("Mask", { exact: true }).click();
  await page.locator(".picture").first().waitFor();
  await page.getByRole("navigation").getByText("Text", { exact: true }).hover();
  await page.mouse.down();
  await page.mouse.up();
  await answered(page);
  assert.equal(await text.inputValue(), TEXT);
  assert.equal(await words.inputValue(), "Bingley");
  await page.goBack();
  await page.goBack();
  await answered(page);
  assert.equal(await text.inputValue(), TEXT);
  without(await all());
  await page.finish();
});

test("a link contains the text only on request, and its contents are listed", async () => {
  const page = await site.open({ view: "text" });
  await answered(page);
  await page.getByLabel("Text", { exact: true }).fill(TEXT);
  await page.getByLabel("Other words to hide, separated by commas").fill("Bingley");
  await page.locator(".text-word.hidden-word", { hasText: "Bingley" }).waitFor(WAIT);
  const all = await addresses(page);
  await page.getByRole("button", { name: "Link to this view" }).click();
  const dialog = page.getByRole("dialog");
  const link = dialog.getByLabel("Link", { exact: true });
  without([await link.inputValue()]);
  assert.match(await dialog.getByRole("status").innerText(), /does not hold the text or the words to hide/);
  await dialog.getByLabel("With the text and the words to hide").check();
  assert.match(await dialog.getByRole("status").innerText(), /holds the whole text \(42 characters\), 1 word to hide/);
  assert.deepEqual(await violations(page), []);
  const address = await link.inputValue();
  for (const secret of SECRETS) assert.ok(address.includes(secret), address);
  without(await all());
  await page.finish();
  // A page opened by the link shows the text and the words, and removes them from its address at once.
  const other = await site.open(new URL(address).hash.slice(1));
  await answered(other);
  assert.equal(await other.getByLabel("Text", { exact: true }).inputValue(), TEXT);
  assert.equal(await other.getByLabel("Other words to hide, separated by commas").inputValue(), "Bingley");
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
  const page = await site.open({ view: "text", text: { text: TEXT, words: ["Bingley"] } });
  await page.locator(".text-proof.good").waitFor(WAIT);
  let release = null;
  const held = new Promise((free) => (release = free));
  await page.route("**/api/text", async (route) => {
    await held;
    await route.continue();
  });
  await page.getByLabel("Text", { exact: true }).fill(`${TEXT} So did Bingley’s sisters.`);
  const proof = page.locator(".text-proof-of");
  await proof.getByText("Checking …").waitFor();
  assert.equal(await page.locator(".text-proof").count(), 0);
  release();
  await page.locator(".text-proof").first().waitFor(WAIT);
  await page.finish();
});
