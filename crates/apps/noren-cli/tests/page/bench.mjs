// Measures the page in a real browser: the time to draw a frame while one zooms and pans, from a keystroke to its picture, and of frames of a
// long flow. Medians and the worst are printed; nothing else should run. `node bench.mjs`, with NOREN_BIN and CHROMIUM as for the tests.

import { explorer, settled } from "./explorer.mjs";

const MILLION = 1 << 20;
const middle = (numbers) => [...numbers].sort((a, b) => a - b)[numbers.length >> 1];
const site = await explorer();

for (const [len, mask] of [
  [MILLION, "sliding(4096) | causal & keys(0..4)"],
  [MILLION, "causal & random_blocks(64, 8, 1)"],
  [65_536, "sliding(4096) | causal & keys(0..4)"],
  [65_536, "causal & random_blocks(64, 8, 1)"],
]) {
  {
    const page = await site.open({ shape: { len }, mask }, { motion: true });
    await settled(page);
    const { between, drawing } = await page.evaluate(async () => {
      const { element, frames } = document.querySelector(".picture").picture;
      const box = element.getBoundingClientRect();
      const [x, y] = [box.left + box.width * 0.55, box.top + box.height * 0.55];
      const pointer = (type, dx, dy) =>
        element.dispatchEvent(
          new PointerEvent(type, { pointerId: 1, clientX: x + dx, clientY: y + dy, button: 0, bubbles: true }),
        );
      element.setPointerCapture = () => {};
      frames.length = 0;
      const between = [];
      const frame = () => new Promise((next) => requestAnimationFrame(next));
      let last = await frame();
      for (let i = 0; i < 240; i += 1) {
        const phase = i % 120;
        if (phase < 45)
          element.dispatchEvent(
            new WheelEvent("wheel", { deltaY: -110, clientX: x, clientY: y, bubbles: true, cancelable: true }),
          );
        else if (phase === 45) pointer("pointerdown", 0, 0);
        else if (phase < 75) pointer("pointermove", (phase - 45) * 17, (phase - 45) * 13);
        else if (phase === 75) pointer("pointerup", 0, 0);
        else
          element.dispatchEvent(
            new WheelEvent("wheel", { deltaY: 110, clientX: x, clientY: y, bubbles: true, cancelable: true }),
          );
        const now = await frame();
        between.push(now - last);
        last = now;
      }
      return { between, drawing: [...frames] };
    });
    const worst = Math.max(...drawing);
    console.log(
      `frames, ${len.toLocaleString("en")} tokens, ${mask}: drawing ${middle(drawing).toFixed(1)} ms median, ${worst.toFixed(1)} worst; between frames ${middle(between).toFixed(1)} ms median, ${Math.max(...between).toFixed(1)} worst`,
    );
    await page.finish();
  }
}

for (const len of [65_536, MILLION]) {
  {
    const page = await site.open({ shape: { len }, mask: "sliding(4096) | causal & keys(0..4)" });
    await settled(page);
    await page.evaluate(() => {
      window.took = [];
      let typed = 0;
      document.querySelector("textarea").addEventListener("input", () => (typed = performance.now()), true);
      const picture = document.querySelector(".picture");
      let last = picture.dataset.settled;
      new MutationObserver(() => {
        const now = picture.dataset.settled;
        if (!now || now === last) return;
        last = now;
        requestAnimationFrame(() => window.took.push(performance.now() - typed));
      }).observe(picture, { attributes: true, attributeFilter: ["data-settled"] });
    });
    const editor = page.getByRole("textbox", { name: "Mask", exact: true });
    await editor.evaluate((input) => {
      input.focus();
      input.setSelectionRange(12, 12); // after 4096
    });
    for (const key of ["Backspace", "7", "Backspace", "5", "Backspace", "9", "Backspace", "1"]) {
      const before = await page.evaluate(() => window.took.length);
      await page.keyboard.press(key);
      await page.waitForFunction((count) => window.took.length > count, before, { timeout: 60_000 });
      await page.waitForTimeout(120);
    }
    const took = await page.evaluate(() => window.took);
    console.log(`keystroke to picture, ${len.toLocaleString("en")} tokens: ${middle(took).toFixed(0)} ms median, ${Math.max(...took).toFixed(0)} worst`);
    await page.finish();
  }
}

{
  const layers = [...Array(5).fill("sliding(1024)"), "causal & stride(4096)"];
  const page = await site.open({ view: "flow", shape: { len: 65_536 }, flow: { layers, depth: 24, token: 40_000 } });
  const shown = (words) => page.waitForFunction((text) => document.body.innerText.includes(text), words, { timeout: 60_000 });
  await shown("token 40,000 depends on");
  await page.locator(".flow-stage").focus();
  const started = Date.now();
  await page.keyboard.press("ArrowRight");
  await shown("token 40,001 depends on");
  const waited = Date.now() - started;
  const frames = await page.evaluate(() => {
    const { picture } = document.querySelector(".flow-stage");
    return Array.from({ length: 40 }, (_, step) => {
      picture.zoom(step % 8 ? 0.6 : 1e9);
      const start = performance.now();
      picture.draw();
      return performance.now() - start;
    });
  });
  console.log(`a flow of 65,536 tokens: ${middle(frames).toFixed(1)} ms median for a frame, ${Math.max(...frames).toFixed(1)} worst; the next token after ${waited} ms`);
  await page.finish();
}

await site.close();
