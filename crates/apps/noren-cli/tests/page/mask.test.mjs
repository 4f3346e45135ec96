// The mask view: masks are written, drawn and explained.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { cover, drawn, explorer, painted, pixel, say, settled } from "./explorer.mjs";

let site;
before(async () => (site = await explorer()));
after(() => site?.close());

test("a mask that is typed is drawn", async () => {
  const page = await site.open({ shape: { len: 6 }, mask: "causal" });
  assert.deepEqual(await drawn(page), ["#.....", "##....", "###...", "####..", "#####.", "######"]);
  await say(page, "sliding(2) | keys(0)");
  await page.waitForFunction(() => {
    const { picture } = document.querySelector(".picture");
    return picture.cell(5, 1)?.byte === 0 && picture.cell(5, 0)?.byte > 0; // the second is false while only the first part is typed
  });
  assert.deepEqual(await drawn(page), ["#.....", "##....", "###...", "#.##..", "#..##.", "#...##"]);
  await page.finish();
});

test("pixels have the colours of their cells", async () => {
  const page = await site.open({ shape: { len: 4 }, mask: "causal" });
  await settled(page);
  await painted(page);
  assert.deepEqual([await pixel(page, 2, 1), await pixel(page, 3, 3), await pixel(page, 0, 3)], [
    [0x2f, 0x4b, 0x8f],
    [0x2f, 0x4b, 0x8f],
    [0xef, 0xec, 0xe4],
  ]);
  await page.finish();
});

test("an error is shown at its position", async () => {
  const page = await site.open({ mask: "causal" });
  await settled(page);
  await say(page, "causal & slidin(3)");
  const bad = page.locator(".mirror .t-bad");
  await page.locator(".mirror .t-bad", { hasText: "slidin" }).waitFor();
  assert.match(await page.locator(".say > .editor .editor-error .says").innerText(), /slidin/);
  assert.match(await page.locator(".say > .editor .editor-error").innerText(), /sliding/);
  assert.equal(await page.getByRole("textbox", { name: "Mask", exact: true }).getAttribute("aria-invalid"), "true");
  await say(page, "causal & sliding(3)");
  await bad.first().waitFor({ state: "detached" });
  await page.finish();
});

test("completion offers atoms, parameters and labels", async () => {
  const page = await site.open({ mask: "causal", facts: { labels: { pii: [2] } } });
  await settled(page);
  const editor = page.getByRole("textbox", { name: "Mask", exact: true });
  await editor.click();
  await page.keyboard.press("End");
  await page.keyboard.type(" & doc");
  await page.getByRole("option", { name: /^documents/ }).waitFor();
  await page.keyboard.press("Enter");
  assert.equal(await editor.inputValue(), "causal & documents");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("window(le");
  await page.getByRole("option", { name: /^left=/ }).waitFor();
  await page.keyboard.press("Tab");
  await page.keyboard.type("2)");
  assert.equal(await editor.inputValue(), "window(left=2)");
  await page.keyboard.press("Control+A");
  await page.keyboard.type('causal - keys(label="p');
  await page.getByRole("option", { name: /^pii/ }).waitFor();
  await page.keyboard.press("Enter");
  await page.keyboard.type(")");
  assert.equal(await editor.inputValue(), 'causal - keys(label="pii")');
  await page.waitForFunction(() => document.querySelector(".picture").picture.cell(3, 2)?.byte === 0);
  await page.finish();
});

test("the atom at the caret is documented", async () => {
  const page = await site.open({ mask: "causal & sliding(3)" });
  await settled(page);
  await page.getByRole("textbox", { name: "Mask", exact: true }).click();
  await page.keyboard.press("End");
  const docs = page.locator(".docs");
  await docs.waitFor();
  assert.match(await docs.innerText(), /sliding\(W\)/);
  await page.keyboard.press("Home");
  await page.waitForFunction(() => /causal/.test(document.querySelector(".docs-title").textContent));
  await page.finish();
});

test("hovering explains a cell, a click pins it", async () => {
  const page = await site.open({ shape: { len: 8 }, mask: "causal & sliding(3)" });
  await settled(page);
  const at = (q, k) =>
    page.evaluate(
      ([row, key]) => {
        const { element, camera } = document.querySelector(".picture").picture;
        const box = element.getBoundingClientRect();
        return [box.left + camera.x(key + 0.5), box.top + camera.y(row + 0.5)];
      },
      [q, k],
    );
  await page.mouse.move(...(await at(6, 1)));
  const why = page.locator(".why");
  await why.getByRole("heading", { name: "May not read" }).waitFor();
  assert.match(await why.innerText(), /query 6.*key 1/s);
  assert.match(await why.locator(".why-expression .deciding").innerText(), /sliding\(3\)/);
  await page.mouse.click(...(await at(6, 5)));
  await why.getByRole("heading", { name: "May read" }).waitFor();
  await page.mouse.move(5, 5);
  await page.waitForTimeout(150);
  assert.match(await why.innerText(), /query 6.*key 5/s);
  await page.waitForFunction(() => /'cell':/.test(location.hash));
  await why.getByRole("button", { name: "Unpin" }).click();
  await why.getByText("Point at a cell").waitFor();
  await page.finish();
});

test("shape and facts are controls", async () => {
  const page = await site.open({ shape: { len: 8 }, mask: "causal & documents & padding" });
  // the errors about missing facts open their controls
  await page.getByLabel("Lengths of packed documents").fill("5, 3");
  await page.getByLabel("Number of non-padding tokens of each batch row").fill("7");
  await page.waitForFunction(
    () =>
      document.querySelector(".picture").picture.cell(7, 5)?.byte === 2 &&
      document.querySelector(".picture").picture.cell(7, 7)?.byte === 0,
  );
  assert.equal((await drawn(page))[6], ".....##.");
  await page.getByLabel("Length", { exact: true }).fill("banana");
  await page.getByText("`banana` is not a whole number").waitFor();
  await page.getByLabel("Length", { exact: true }).fill("8");
  await page.getByRole("button", { name: "Decode" }).click();
  await page.getByLabel("Cached keys").waitFor();
  await page.finish();
});

test("the view is also shown as a command", async () => {
  const page = await site.open({ shape: { len: 12, heads: 2 }, mask: "causal & documents", facts: { documents: [5, 7] } });
  await settled(page);
  const line = () => page.locator("pre.command").textContent();
  assert.equal(await line(), "noren show 'causal & documents' --len 12 --heads 2 --facts <(echo '{\"documents\":[5,7]}')");
  await page.getByRole("button", { name: "Compare with another mask" }).click();
  await say(page, "causal", "Mask compared with");
  await page.waitForFunction(() =>
    document.querySelector("pre.command").textContent.startsWith("noren diff 'causal & documents' causal --len 12"),
  );
  await page.finish();
});

test("heads that differ are shown beside each other", async () => {
  const page = await site.open({ shape: { len: 8, heads: 4 }, mask: "heads(0..2: causal, 2..: full)" });
  await settled(page);
  const patterns = page.locator(".pattern");
  await patterns.nth(1).waitFor();
  assert.equal(await patterns.count(), 2);
  assert.equal(await cover(page, 0, 7), 0);
  await patterns.nth(1).click();
  await page.waitForFunction(() => document.querySelector(".picture").picture.cell(0, 7)?.byte === 2);
  await page.finish();
});

test("tiles of the plan are drawn over the cells", async () => {
  const page = await site.open({ shape: { len: 512 }, mask: "causal" });
  await settled(page);
  await page.getByRole("button", { name: "Tiles" }).click();
  await page.waitForFunction(() => {
    const tile = (q, k) => ((document.querySelector(".picture").picture.cell(q, k)?.byte ?? 0) >> 2) & 3;
    return tile(511, 0) === 2 && tile(256, 256) === 1 && tile(0, 511) === 0;
  });
  await page.getByText("full tile", { exact: false }).waitFor();
  await page.finish();
});

test("presets are found and shown", async () => {
  const page = await site.open();
  await page.getByRole("button", { name: "Presets" }).click();
  const gallery = page.getByRole("dialog");
  await gallery.getByRole("searchbox").fill("mistral");
  await gallery.locator(".preset").first().click();
  await gallery.waitFor({ state: "detached" });
  await page.waitForFunction(() => /sliding/.test(document.querySelector("textarea").value));
  await settled(page);
  await page.goBack();
  await page.waitForFunction(() => /spans/.test(document.querySelector("textarea").value));
  await page.finish();
});

test("the language is listed, and its examples can be inserted", async () => {
  const page = await site.open({ mask: "causal & ", shape: { len: 8 } });
  await page.getByRole("textbox", { name: "Mask", exact: true }).press("End");
  await page.getByRole("button", { name: "Language" }).click();
  const dialog = page.getByRole("dialog", { name: "The language" });
  assert.ok((await dialog.locator(".word-list > li").count()) > 15);
  await dialog.getByRole("searchbox").fill("same chunk");
  await dialog.getByRole("button", { name: "chunk(512)" }).click();
  assert.equal(await page.getByRole("textbox", { name: "Mask", exact: true }).inputValue(), "causal & chunk(512)");
  await settled(page);
  await page.finish();
});

test("every export can be downloaded", async () => {
  const page = await site.open({ shape: { len: 8 }, mask: "causal & sliding(3)" });
  await settled(page);
  const wanted = {
    SVG: /<svg/,
    PNG: /PNG/,
    Text: /causal/,
    "Save as web page": /^<!doctype html>/,
    Expression: /causal & sliding\(3\)/,
    JSON: /"mask"/,
    "NumPy array": /NUMPY/,
  };
  for (const [name, content] of Object.entries(wanted)) {
    await page.getByRole("button", { name: "Export" }).click();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("menuitem", { name: new RegExp(`^${name}`) }).click(),
    ]);
    const chunks = [];
    for await (const chunk of await download.createReadStream()) chunks.push(chunk);
    assert.match(Buffer.concat(chunks).toString("latin1"), content, name);
  }
  await page.finish();
});

test("the address restores the state", async () => {
  const page = await site.open({ shape: { len: 64 }, mask: "causal & chunk(8)", plan: true });
  await settled(page);
  await page.evaluate(() => document.querySelector(".picture").picture.jump({ q: 40, k: 33 }));
  await page.waitForFunction(() => /'camera':/.test(location.hash));
  await settled(page);
  const address = page.url();
  const again = await site.open(new URL(address).hash.slice(1));
  await settled(again);
  assert.equal(await again.locator("textarea").first().inputValue(), "causal & chunk(8)");
  assert.equal(await again.getByRole("button", { name: "Tiles" }).getAttribute("aria-pressed"), "true");
  const place = (of) => of.evaluate(() => document.querySelector(".picture").picture.camera.place.map(Math.round));
  assert.deepEqual(await place(again), await place(page));
  await again.finish();
  await page.finish();
});

test("an address may hold anything", async () => {
  const fragments = [
    "x",
    "%",
    "%E0%A4%A",
    "'view':'nowhere'",
    "'mask':5,'shape':[],'facts':null,'at':[-1,1e99],'cell':['a'],'camera':[1]",
    "'shape':%7B'len':'banana'%7D",
    "'shape':%7B'len':1e300%7D",
    "'__proto__':%7B'view':'cost'%7D",
    "'camera':[1e300,-1e300,0]",
    "'cell':[99999,99999]",
    "'view':'flow','flow':%7B'layers':5,'depth':'x','policy':[]%7D",
    "'view':'text','text':%7B'text':7,'hide':3%7D",
    "'view':'doctor','doctor':%7B'kind':[]%7D",
  ];
  for (const fragment of fragments) {
    const page = await site.open(fragment);
    await page.getByRole("navigation").getByText("Mask").click();
    await page.locator("textarea").first().waitFor();
    await page.finish();
  }
});

test("masks that the server no longer has are sent again, and a busy server gets the request again", async () => {
  const page = await site.open({ shape: { len: 8 }, mask: "causal" });
  await settled(page);
  const refused = { gone: 0, busy: 0 };
  const answer = (status) => ({
    status: 200,
    headers: { "X-Noren-Status": String(status) },
    contentType: "application/json",
    body: '{"error":{"message":"no"}}',
  });
  await page.route("**/tiles/**", (route) => {
    if (refused.gone < 1) return route.fulfill(((refused.gone += 1), answer(410)));
    if (refused.busy < 2) return route.fulfill(((refused.busy += 1), answer(503)));
    return route.continue();
  });
  const sent = [];
  page.on("request", (request) => request.url().endsWith("/api/masks") && sent.push(request.postDataJSON().mask));
  await say(page, "chunk(4)");
  await page.waitForFunction(() => document.querySelector(".picture").picture.cell(0, 3)?.byte === 2);
  assert.deepEqual(refused, { gone: 1, busy: 2 });
  assert.ok(sent.filter((mask) => mask === "chunk(4)").length >= 2);
  await page.finish();
});

test("tiles that failed are requested again", async () => {
  const page = await site.open({ shape: { len: 8 }, mask: "causal" });
  await settled(page);
  let refused = 0;
  await page.route("**/tiles/**", (route) => {
    refused += 1;
    return refused === 1
      ? route.fulfill({
          status: 200,
          headers: { "X-Noren-Status": "507" },
          contentType: "application/json",
          body: '{"error":{"message":"took more memory than the limit"}}',
        })
      : route.continue();
  });
  await say(page, "chunk(4)");
  await page.locator(".toast", { hasText: "took more memory" }).waitFor();
  await page.waitForFunction(() => document.querySelector(".picture").picture.cell(0, 3)?.byte === 2);
  await page.finish();
});

test("every batch row is reached, and no wrong pattern is marked", async () => {
  const lengths = Array.from({ length: 300 }, (_, row) => row + 1);
  const page = await site.open({ shape: { len: 300, batch: 300 }, mask: "padding", facts: { lengths } });
  await settled(page);
  const patterns = page.locator(".patterns");
  await patterns.getByText("300 distinct patterns: only the first 64 are shown").waitFor();
  const marked = patterns.locator('[aria-pressed="true"]');
  assert.equal(await marked.count(), 1);
  await page.locator(".steppers").getByLabel("Batch row", { exact: true }).fill("289");
  await page.waitForFunction(() => document.querySelector(".picture").picture.cell(0, 289)?.byte === 2);
  assert.equal(await cover(page, 0, 290), 0);
  assert.equal(await marked.count(), 0);
  await page.finish();
});

test("query offsets may be negative, and labels may differ between batch rows", async () => {
  const facts = { labels: { pii: [["1..3"], [5]] } };
  const page = await site.open({ shape: { q: 4, kv: 8, query_offset: 0, batch: 2 }, mask: 'causal | keys(label="pii")', facts });
  await settled(page);
  await page.getByLabel("Query offset").fill("-3");
  await page.waitForFunction(() => /'query_offset':-3/.test(location.hash) && document.querySelector(".picture").picture.cell(0, 0)?.byte === 0);
  assert.deepEqual(await drawn(page), [".##.....", ".##.....", ".##.....", "###....."]);
  await page.locator("summary", { hasText: "Labels and levels" }).click();
  const positions = page.getByLabel("Positions of pii");
  assert.equal(await positions.inputValue(), "1..3; 5");
  await positions.fill("; 2, 6..");
  await page.waitForFunction(() => document.querySelector(".picture").picture.cell(0, 1)?.byte === 0);
  assert.deepEqual(await page.evaluate(async () => (await import("./js/base/state.js")).state.get().facts.labels), {
    pii: [[], [2, "6.."]],
  });
  await page.finish();
});

test("a text that is too long is refused, not replaced", async () => {
  const page = await site.open({ shape: { len: 8 }, mask: "causal" });
  await settled(page);
  const long = `causal${" & causal".repeat(8000)}`;
  const editor = page.getByRole("textbox", { name: "Mask", exact: true });
  await editor.fill(long);
  await page.locator(".editor-error .says", { hasText: "up to 16,384 bytes" }).waitFor();
  await page.getByRole("button", { name: "Tiles" }).click();
  assert.ok((await editor.inputValue()) === long);
  await page.getByRole("button", { name: "Export", disabled: true }).waitFor();
  await editor.fill("chunk(4)");
  await page.waitForFunction(() => document.querySelector(".picture").picture.cell(0, 3)?.byte > 0);
  await page.getByRole("button", { name: "Export", disabled: false }).waitFor();
  await page.finish();
});

test("a tile that cannot be drawn is not requested again", async () => {
  const page = await site.open({ shape: { len: 64 }, mask: "causal" });
  await settled(page);
  let refused = 0;
  await page.route("**/tiles/**", (route) => {
    refused += 1;
    return route.fulfill({
      status: 200,
      headers: { "X-Noren-Status": "507" },
      contentType: "application/json",
      body: '{"error":{"message":"took more memory than the limit"}}',
    });
  });
  await page.clock.install();
  await say(page, "chunk(4)");
  const status = page.locator(".picture-status").first();
  await status.getByText("1 piece of this picture cannot be drawn: took more memory than the limit. The page soon requests the missing pieces again.").waitFor();
  await page.clock.fastForward(1000);
  assert.equal(refused, 1);
  const over = status.getByText("The page requests the missing pieces again only after the view changes.");
  for (let tries = 0; tries < 100 && !(await over.isVisible()); tries += 1) {
    await page.clock.fastForward(31_000);
    await page.waitForTimeout(100);
  }
  await over.waitFor();
  assert.equal(refused, 4);
  for (let hour = 0; hour < 2; hour += 1) await page.clock.fastForward(3_600_000);
  await page.waitForTimeout(300);
  assert.equal(refused, 4);
  await page.unroute("**/tiles/**");
  await page.getByRole("button", { name: "Zoom in" }).click();
  await page.waitForFunction(() => document.querySelector(".picture").picture.cell(0, 3)?.byte === 2);
  await status.waitFor({ state: "hidden" });
  await page.finish();
});

test("a mask from a file that the server no longer has is reported", async () => {
  const page = await site.open({ shape: { len: 8 }, mask: "causal" });
  const message = await page.evaluate(async () => {
    const { tile } = await import("./js/base/api.js");
    return tile("0".repeat(32), 0, 0, 0).catch((error) => error.message);
  });
  assert.equal(message, "This mask came from a file or a text: give the file or the text again.");
  await page.finish();
});

test("a click on its name leads to each view", async () => {
  const page = await site.open({ shape: { len: 6 }, mask: "causal" });
  for (const name of ["Cost", "Flow", "Text", "Doctor", "Mask"]) {
    await page.click(`nav a:has-text("${name}")`);
    await page.waitForFunction((title) => document.title === `${title} · noren`, name, { timeout: 60_000 });
  }
  await page.finish();
});
