// The text view: a text through a model, private text in it, hidden text, and the proof.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { themed } from "./axe.mjs";
import { explorer, settled } from "./explorer.mjs";
import { textCommand } from "../../../noren-explorer/page/js/base/command.js";
import { settings } from "../../../noren-explorer/page/js/text/settings.js";
import { proofInWords, runs } from "../../../noren-explorer/page/js/text/outcome.js";
import { readsInWords } from "../../../noren-explorer/page/js/text/words.js";

let site;
before(async () => (site = await explorer()));
after(() => site?.close());

const SAYS = "Dear Jane, write to ann@longbourn.example when you are in town, and we shall come.";
const open = (text, options) => site.open({ view: "text", text }, options);
const WAIT = { timeout: 60_000 };

/** Waits until the answer to the last request is shown. */
const answered = (page) => page.waitForFunction(() => {
  const view = document.querySelector(".text");
  return !view.classList.contains("waiting") && document.querySelector(".text-word");
}, null, WAIT);

/** Waits until the map shows this layer and head. */
const shows = (page, place) =>
  page.waitForFunction((at) => document.querySelector(".text-canvas").getAttribute("aria-label").includes(at), place, WAIT);

test("a proof in words", () => {
  const proof = { holds: true, trials: 3, compared: 14080, leaks: [], secret_changed: 9 };
  assert.equal(proofInWords(proof), "The model ran again with other secrets in the same places (3 runs), and 14,080 output numbers were compared: no number changed.");
  assert.match(proofInWords({ ...proof, holds: false, leaks: [4, 5] }), /the outputs of 2 released tokens changed/);
  assert.match(proofInWords({ ...proof, holds: false, secret_changed: 0 }), /did not change either/);
  assert.equal(runs([3, 4, 5, 9, 12, 13]), "3..6, 9, 12..14");
  assert.equal(readsInWords([{ text: "a" }, { text: " " }], 1, [0.75, 0.25]), "“␣” reads “a” 75 %, “␣” 25 %.");
  assert.equal(readsInWords([{ text: "a" }], 0, [0]), "“a” reads nothing.");
});

test("no secret is dropped, however many there are and however long", () => {
  const model = { layers: 5, heads: 4, kinds: ["email"], example: "" };
  const words = [...Array.from({ length: 65 }, (_, at) => `name${at}`), "x".repeat(401)];
  assert.deepEqual(settings({ text: { words, hide: ["email", "unknown"] } }, model).words, words);
  assert.deepEqual(settings({ text: { words, hide: ["email", "unknown"] } }, model).hide, ["email", "unknown"]);
  assert.deepEqual(settings({ text: { words: ["Jane", 5], hide: "email" } }, model).words, ["Jane"]);
});

test("the view as a command", () => {
  const set = { text: "Dear Jane", mask: " ", hide: ["email"], words: ["Jane", "-5", "-5 °C"], layer: 2, head: 0 };
  assert.equal(textCommand(set), "noren run 'Dear Jane' --hide email --word Jane --word=-5 --word='-5 °C' --layer 2 --head 0");
  assert.equal(textCommand({ ...set, hide: [], words: [], text: "-5 it is" }), "noren run --layer 2 --head 0 -- '-5 it is'");
  assert.match(textCommand({ ...set, text: "-" }), /^printf %s - \| noren run .* -- -$/);
});

test("an email address is found, hidden, and proved to stay hidden", async () => {
  const page = await open({ text: "Dear Jane," });
  await answered(page);
  assert.match(await page.locator(".text-private").innerText(), /No private text was found/);
  await page.getByLabel("Text", { exact: true }).fill(SAYS);
  const word = page.locator(".text-word.private");
  await word.waitFor(WAIT);
  assert.match(await word.innerText(), /email/);
  assert.match(await page.locator(".text-found").innerText(), /email[\s\S]*readable/);
  assert.match(await page.locator(".text-proof-of").innerText(), /nothing to test/);
  await page.getByLabel("email", { exact: true }).check();
  const proof = page.locator(".text-proof.good");
  await proof.waitFor(WAIT);
  assert.match(await proof.innerText(), /No leak found\.\s+The model ran again with other secrets in the same places \(3 runs\), and [\d,]+ output numbers were compared: no number changed\./);
  assert.match(await page.locator(".text-found").innerText(), /email[\s\S]*hidden/);
  assert.match(await page.locator(".text-word.hidden-word").innerText(), /email · hidden/);
  assert.match(await page.locator(".text-mask").innerText(), /private/);
  await settled(page, ".text-masked .picture");
  await page.waitForFunction(() => location.hash.includes("'hide':['email']"));
  await page.finish();
});

test("own words are hidden", async () => {
  const page = await open({ text: SAYS });
  await answered(page);
  await page.getByLabel("Other words to hide, separated by commas").fill("Jane");
  await page.locator(".text-word.hidden-word", { hasText: "Jane" }).waitFor(WAIT);
  await page.locator(".text-proof.good").waitFor(WAIT);
  await page.finish();
});

test("the sixty-fifth own word hides as the first did", async () => {
  const page = await open({ text: SAYS });
  await answered(page);
  const others = Array.from({ length: 70 }, (_, at) => `nobody${at}`);
  await page.getByLabel("Other words to hide, separated by commas").fill(["Jane", ...others, "y".repeat(401)].join(", "));
  // The word must be hidden, or refused with a message; never shown.
  await page.locator(".text-word.hidden-word, .text-main > .notice.bad:visible").first().waitFor(WAIT);
  await page.finish();
});

test("no token reads hidden text", async () => {
  const page = await open({ text: SAYS, hide: ["email"] });
  await answered(page);
  const words = page.locator(".text-word");
  const last = (await words.count()) - 1;
  await words.nth(last).click();
  const strengths = await words.evaluateAll((all) =>
    all.map((word) => [word.classList.contains("hidden-word"), Number(word.style.getPropertyValue("--strength"))]));
  assert.ok(strengths.some(([hidden]) => hidden));
  assert.ok(strengths.every(([hidden, strength]) => !hidden || strength === 0));
  assert.ok(strengths.some(([, strength]) => strength === 1));
  await page.finish();
});

test("words are read by keyboard", async () => {
  const page = await open({ text: SAYS });
  await answered(page);
  await page.getByRole("listbox", { name: "The text, word by word" }).focus();
  await page.keyboard.press("Home");
  for (let i = 0; i < 3; i += 1) await page.keyboard.press("ArrowRight");
  const chosen = page.locator('.text-word[aria-selected="true"]');
  assert.equal(await chosen.getAttribute("data-index"), "3");
  const name = (await chosen.innerText()).trim();
  assert.ok((await page.locator(".text-reads").innerText()).startsWith(`“${name}” reads “`));
  await page.waitForFunction(() => location.hash.includes("'word':3"));
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !location.hash.includes("'word':"));
  await page.finish();
});

test("another layer and head are another map", async () => {
  const page = await open({ text: SAYS });
  await answered(page);
  const map = () => page.evaluate(() => document.querySelector(".text-canvas").toDataURL());
  const before = await map();
  await page.getByRole("button", { name: "Layer 4", exact: true }).click();
  await page.getByRole("button", { name: "Head 2", exact: true }).click();
  await shows(page, "layer 4, head 2");
  await page.waitForFunction((old) => document.querySelector(".text-canvas").toDataURL() !== old, before, WAIT);
  await page.waitForFunction(() => location.hash.includes("'layer':4"));
  await page.getByText("All layers and heads").click();
  const maps = await page.locator(".text-small").all();
  assert.ok(maps.length > 4);
  for (const one of maps) {
    await one.scrollIntoViewIfNeeded(); // visible maps are requested
    await page.waitForFunction((canvas) => canvas.width > 1, await one.elementHandle(), { timeout: 60_000 });
  }
  await page.locator(".text-place").first().click();
  await shows(page, "layer 0, head 0");
  await page.finish();
});

test("the map and the text show the same row", async () => {
  const page = await open({ text: SAYS });
  await answered(page);
  await page.locator(".text-canvas").scrollIntoViewIfNeeded();
  const box = await page.locator(".text-canvas").boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height * 0.8);
  await page.locator(".text-word.reader").waitFor();
  assert.match(await page.locator(".text-reads").innerText(), /reads/);
  await page.finish();
});

test("predictions that would reveal a secret are withheld", async () => {
  const page = await open({ text: "My address is ann@longbourn.example", hide: ["email"] });
  await answered(page);
  assert.match(await page.locator(".text-says").innerText(), /Withheld/);
  await page.finish();
});

test("an invalid mask is marked", async () => {
  const page = await open({ text: SAYS });
  await answered(page);
  const mask = page.getByRole("textbox", { name: "Mask", exact: true });
  await mask.fill("causal & slidin(4)");
  await page.locator(".text-ask .editor-error").waitFor(WAIT);
  await mask.fill("causal & sliding(16)");
  await page.waitForFunction(() => document.querySelector(".text-mask").textContent.includes("sliding(16)"), null, WAIT);
  await page.finish();
});

test("a text without tokens and one that is too long are refused with a message", async () => {
  const page = await open({ text: "x".repeat(5000) });
  await page.locator(".text-main > .notice").waitFor(WAIT);
  assert.match(await page.locator(".text-main > .notice").innerText(), /tokens/);
  await page.getByLabel("Text", { exact: true }).fill("Dear Jane,");
  await answered(page);
  await page.locator(".text-main > .notice").waitFor({ state: "hidden" });
  await page.finish();
});

test("an address that holds nonsense breaks nothing", async () => {
  const page = await open({ text: 5, hide: "email", words: [{}], layer: 99, head: -1, mask: [], word: 1e9 });
  await answered(page);
  await page.finish();
});

test("axe: secrets hidden, everything open", async () => {
  const page = await open({ text: `${SAYS} Call 020 7946 0958.`, hide: ["email"], word: 2 });
  await answered(page);
  await page.locator("details").evaluateAll((folds) => folds.forEach((fold) => (fold.open = true)));
  assert.deepEqual(await themed(page), []);
  await page.finish();
});
