// The lessons: all are walked by mouse and by keyboard, with wrong and right answers. The offer on the first visit.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { themed, violations } from "./axe.mjs";
import { explorer, root, settled } from "./explorer.mjs";

let site;
before(async () => (site = await explorer()));
after(() => site?.close());

const LESSONS = JSON.parse(readFileSync(join(root, "crates/apps/noren-explorer/page/lessons.json"), "utf8"));

/** A wrong and a right answer to each lesson, as parts to insert, and a part of the reason for the wrong answer. */
const ANSWERS = {
  scores: [["!", "queries(1)"], ["!", "keys(1)"], "Keys are columns"],
  padding: [["padding(on=both)"], ["padding"], "empties the rows"],
  causal: [["!", "causal"], ["causal"], "upper triangle"],
  both: [["causal", "|", "padding"], ["causal", "&", "padding"], "Both must hold"],
  empty: [["causal", "&", "padding", "|", "keys(0..2)"], ["causal", "&", "padding", "|", "sliding(1)"], "every token reads the padding"],
  sparse: [["sliding(3)", "|", "keys(0..2)"], ["sliding(3)", "|", "causal", "&", "keys(0..2)"], "in its future"],
  heads: [["heads(0: causal)"], ["heads(0: causal, 1: sliding(2))"], "reads nothing"],
  documents: [["causal", "&", "documents([5, 3, 4])"], ["causal", "&", "documents"], "first packing only"],
  cache: [["keys(2..6)"], ["sliding(4)"], "fixed positions"],
  cross: [["causal", "&", "padding"], ["padding"], "word order"],
  private: [
    ["causal", "-", "(", "keys(3)", "&", "queries(5..)", ")"],
    ["causal", "-", "(", "keys(3..5)", "&", "queries(5..)", ")"],
    "in the second layer",
  ],
  dynamic: [["causal", "-", "keys(3)", "|", "sliding(1)"], ["causal", "-", 'keys(label="pii")', "|", "sliding(1)"], "name the label"],
};
const spaced = (parts) => parts.map((part) => (["&", "|", "-"].includes(part) ? ` ${part} ` : part)).join("");

const feedback = (page, kind) => page.locator(`.learn-feedback.${kind}`);
const lesson = (page, at) => page.getByText(`Lesson ${at + 1} of 12`).waitFor();

test("each lesson has an answer here", () => {
  assert.equal(LESSONS.length, 12);
  assert.deepEqual(LESSONS.map(({ id }) => id), Object.keys(ANSWERS));
});

test("all lessons by mouse, with wrong and right answers", async () => {
  const page = await site.open("/learn");
  const insert = async (parts) => {
    for (const part of parts) await page.getByRole("button", { name: `Insert ${part}`, exact: true }).click();
  };
  for (const [at, { id }] of LESSONS.entries()) {
    const [wrong, right, why] = ANSWERS[id];
    await lesson(page, at);
    await insert(wrong);
    await page.getByRole("button", { name: "Check" }).click();
    await feedback(page, "wrong").waitFor();
    const says = await feedback(page, "wrong").innerText();
    assert.ok(says.includes("Not yet. Query ") && says.includes(why), `${id}: ${says}`);
    assert.equal(await page.locator(".learn-mark.done").count(), at);
    await page.getByRole("button", { name: "Start again" }).click();
    await insert(right);
    await page.getByRole("button", { name: "Check" }).click();
    await feedback(page, "right").waitFor();
    assert.equal(await page.locator(".learn-mark.done").count(), at + 1);
    if (at < 11) await page.getByRole("button", { name: "Next lesson" }).click();
  }
  await page.getByText("12 of 12 done").waitFor();
  assert.ok(await page.getByRole("button", { name: "Next lesson" }).isHidden());
  await page.reload();
  await page.getByText("12 of 12 done").waitFor();
  await page.getByRole("button", { name: "Forget my progress" }).click();
  await page.getByText("0 of 12 done").waitFor();
  await page.finish();
});

test("all lessons by keyboard, with wrong and right answers", async () => {
  const page = await site.open("/learn");
  const reach = async (what, matches) => {
    for (let i = 0; i < 60; i += 1) {
      if (await page.evaluate(matches)) return;
      await page.keyboard.press("Tab");
    }
    assert.fail(`Tab never came to ${what}`);
  };
  const editor = () => reach("the editor", () => document.activeElement.matches(".learn-task textarea"));
  const press = async (name) => {
    for (let i = 0; i < 60; i += 1) {
      if ((await page.evaluate(() => document.activeElement.textContent)) === name) return page.keyboard.press("Enter");
      await page.keyboard.press("Tab");
    }
    return assert.fail(`Tab never came to ${name}`);
  };
  for (const [at, { id }] of LESSONS.entries()) {
    const [wrong, right, why] = ANSWERS[id];
    await lesson(page, at);
    await editor();
    await page.keyboard.type(spaced(wrong));
    await page.keyboard.press("Escape");
    await press("Check");
    await feedback(page, "wrong").waitFor();
    assert.ok((await feedback(page, "wrong").innerText()).includes(why), id);
    await press("Hint");
    await feedback(page, "hint").waitFor();
    await press("Start again");
    await editor();
    await page.keyboard.type(spaced(right));
    await page.keyboard.press("Escape");
    await press("Check");
    await feedback(page, "right").waitFor();
    if (at < 11) await press("Next lesson"); // it has the focus
  }
  await page.getByText("12 of 12 done").waitFor();
  await page.finish();
});

test("each known mistake is wrong and gets its reason; other right answers are right", async () => {
  const page = await site.open("/learn");
  await lesson(page, 0);
  const failures = await page.evaluate(async (lessons) => {
    const { check } = await import("./js/learn/check.js");
    const api = await import("./js/base/api.js");
    const failed = [];
    for (const one of lessons) {
      for (const { mask, says } of one.reasons) {
        const result = await check(api, one, mask);
        if (result.right || result.why !== says) failed.push(`${one.id}: ${mask}: ${JSON.stringify(result)}`);
      }
      if ((await check(api, one, one.start)).right) failed.push(`${one.id}: the start is right`);
      // The same cells in other words.
      if (!(await check(api, one, `!(!(${one.wanted}))`)).right) failed.push(`${one.id}: the wanted mask is wrong`);
      const unknown = await check(api, one, "none");
      if (unknown.right || !/In your mask, query \d+ may not read key \d+/.test(unknown.why)) failed.push(`${one.id}: none: ${unknown.why}`);
    }
    return failed;
  }, LESSONS);
  assert.deepEqual(failures, []);
  await page.finish();
});

test("an answer that is not a mask is marked, and nothing is done", async () => {
  const page = await site.open("/learn/causal");
  await lesson(page, 2);
  await page.getByRole("button", { name: "Check" }).click();
  await feedback(page, "wrong").waitFor();
  assert.match(await feedback(page, "wrong").innerText(), /no answer yet/);
  await page.getByRole("textbox", { name: "Your mask" }).fill("cuasal");
  await page.getByRole("button", { name: "Check" }).click();
  await page.getByText("This is not a mask yet.").waitFor();
  assert.match(await feedback(page, "wrong").innerText(), /cuasal.*causal/s);
  assert.equal(await page.locator(".learn-mark.done").count(), 0);
  await page.getByRole("textbox", { name: "Your mask" }).fill("causal");
  await page.getByRole("button", { name: "Check" }).click();
  await feedback(page, "right").waitFor();
  // A changed answer has no feedback.
  await page.getByRole("textbox", { name: "Your mask" }).fill("causal & full");
  await feedback(page, "right").waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Open in the mask view" }).click();
  await page.getByRole("heading", { name: "Write a mask" }).waitFor();
  assert.equal(await page.getByRole("textbox", { name: "Mask", exact: true }).inputValue(), "causal & full");
  await page.goBack();
  await lesson(page, 2);
  await page.finish();
});

test("a wrong answer shows the case and the cell", async () => {
  const page = await site.open("/learn/cache");
  await page.getByRole("textbox", { name: "Your mask" }).fill("keys(2..6)");
  await page.getByRole("button", { name: "Check" }).click();
  await feedback(page, "wrong").waitFor();
  assert.equal(await page.getByRole("button", { name: "Step n + 1" }).getAttribute("aria-pressed"), "true");
  await settled(page, ".learn-picture .picture");
  await page.finish();
});

test("lessons work without storage", async () => {
  const page = await site.open("/learn");
  await page.addInitScript(() =>
    Object.defineProperty(window, "localStorage", {
      get() {
        throw new DOMException("denied", "SecurityError");
      },
    }));
  await page.reload();
  await lesson(page, 0);
  await page.getByRole("textbox", { name: "Your mask" }).fill("!keys(1)");
  await page.getByRole("button", { name: "Check" }).click();
  await feedback(page, "right").waitFor();
  await page.getByText("1 of 12 done").waitFor();
  await page.finish();
});

test("an address that holds nonsense breaks nothing", async () => {
  for (const learn of [{ lesson: 5, answer: {} }, { lesson: "nothing" }, { lesson: "causal", answer: "cuasal" }]) {
    const page = await site.open({ view: "learn", learn });
    await page.getByText(/Lesson \d+ of 12/).waitFor();
    await page.finish();
  }
});

test("the first visit offers where to begin", async () => {
  const offer = (page) => page.getByRole("region", { name: "Where to begin" });
  for (const [name, heading] of [
    ["Learn", "Scores and softmax"],
    ["Write a mask", "Write a mask"],
    ["Check a file", /./],
    ["Check a text", "What a model may read"],
  ]) {
    const page = await site.open();
    await offer(page).waitFor();
    assert.deepEqual(await violations(page), []);
    await offer(page).getByRole("button", { name }).click();
    await page.getByRole("heading", { name: heading, level: 1 }).waitFor();
    await page.goto("about:blank");
    await page.goto(site.address);
    await page.waitForFunction(() => document.documentElement.dataset.ready);
    assert.equal(await offer(page).count(), 0, "the offer is shown once");
    await page.finish();
  }
  const page = await site.open({ mask: "causal", shape: { len: 4 } });
  await settled(page);
  assert.equal(await offer(page).count(), 0, "a link shows its state");
  await page.finish();
});

for (const width of [1440, 390]) {
  test(`axe: lessons with feedback, ${width}`, async () => {
    for (const [id, answer] of [["empty", "causal"], ["documents", "causal & documents"]]) {
      const page = await site.open({ view: "learn", learn: { lesson: id, answer } }, { width, height: 844 });
      await page.getByRole("button", { name: "Check" }).click();
      await page.locator(".learn-feedback strong").waitFor();
      await page.evaluate(() => document.querySelectorAll("details").forEach((fold) => (fold.open = true)));
      assert.deepEqual(await themed(page), []);
      assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= width);
      await page.finish();
    }
  });
}
