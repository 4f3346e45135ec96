// The panel "Code": the code of the mask in each library, the copy of it, and the reason where a library cannot express the mask.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { violations } from "./axe.mjs";
import { explorer, root, say, settled } from "./explorer.mjs";

const BINARY = process.env.NOREN_BIN ?? `${root}/target/release/noren`;

let site;
before(async () => (site = await explorer()));
after(() => site?.close());

/** Opens the panel, by mouse or by keyboard. */
async function openPanel(page, keyboard = false) {
  await settled(page);
  const summary = page.locator(".code-panel > summary");
  if (keyboard) {
    await summary.focus();
    await page.keyboard.press("Enter");
  } else await summary.click();
}

/** Waits until the panel shows the answer for a library, and returns its code. */
async function codeOf(page, target) {
  await page.locator(`.code-panel[data-settled$=" ${target}"]`).waitFor();
  return page.locator(".code-text").textContent();
}

/** Returns the code that the command prints. */
const printed = (mask, target, ...more) =>
  execFileSync(BINARY, ["code", mask, "--to", target, ...more], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });

test("the panel has the code that the command prints, for every library", async () => {
  const mask = "causal & documents([5, 3])";
  const page = await site.open({ mask, shape: { len: 8 } });
  await openPanel(page);
  assert.match(await codeOf(page, "flex"), /document_id\[q_idx\] == document_id\[kv_idx\]/);
  const choice = page.getByLabel("Library");
  const targets = await choice.locator("option").evaluateAll((options) => options.map(({ value }) => value));
  const { targets: known } = await page.evaluate(async () => (await fetch("api/language")).json());
  assert.deepEqual(targets, known.map(({ name }) => name));
  for (const target of targets) {
    await choice.selectOption(target);
    assert.equal(await codeOf(page, target), printed(mask, target, "--len", "8"), target);
  }
  assert.deepEqual(await violations(page), []);
  await page.finish();
});

test("the code follows the mask, its facts and the chosen library, which is kept", async () => {
  const page = await site.open({ mask: "causal", shape: { len: 8 } });
  await openPanel(page, true);
  await codeOf(page, "flex");
  await page.getByLabel("Library").selectOption("numpy");
  assert.match(await codeOf(page, "numpy"), /keep = k <= q/);
  await say(page, "sliding(3)");
  await page.waitForFunction(() => document.querySelector(".code-text").textContent.includes("k > q - 3"));
  await say(page, "slidin(3)");
  await page.locator(".code-panel").getByText("has an error, so there is no code").waitFor();
  assert.ok(await page.locator(".code-text").isHidden());
  await say(page, "sliding(4)");
  await page.waitForFunction(() => document.querySelector(".code-text").textContent.includes("k > q - 4"));
  await page.waitForFunction(() => location.hash.includes("sliding(4)")); // a reload before this opens the address with the error
  await page.reload();
  await openPanel(page);
  assert.match(await codeOf(page, "numpy"), /k > q - 4/);
  await page.finish();
});

test("a library that cannot express the mask gives its reason, and nothing can be copied", async () => {
  const page = await site.open({ mask: "causal + sinks", shape: { len: 6 } });
  await openPanel(page);
  await page.locator(".code-panel").getByText("FlexAttention's score_mod cannot express the score modifier sinks").or(
    page.locator(".code-panel").getByText("FlexAttention's score_mod cannot express the score modifier `sinks`"),
  ).waitFor();
  await page.locator(".code-panel").getByRole("button", { name: "Copy", disabled: true }).waitFor();
  await page.getByLabel("Library").selectOption("numpy");
  assert.match(await codeOf(page, "numpy"), /total = total \+ np\.exp\(sinks/);
  await page.finish();
});

test("the button copies the code", async () => {
  const page = await site.open({ mask: "causal", shape: { len: 4 } });
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await openPanel(page);
  const code = await codeOf(page, "flex");
  await page.locator(".code-panel").getByRole("button", { name: "Copy" }).click();
  await page.getByText("Copied.").waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), code);
  await page.finish();
});

test("on a small screen, long lines scroll inside of the panel", async () => {
  const page = await site.open({ mask: "causal & documents([5, 3])", shape: { len: 8 } }, { width: 390, height: 844 });
  await openPanel(page);
  await codeOf(page, "flex");
  const clipped = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.equal(clipped, 0);
  await page.finish();
});
