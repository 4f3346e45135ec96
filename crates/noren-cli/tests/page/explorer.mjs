// A real server and a real browser for the tests of a file. A page fails its test if it logs an error or a warning in the console, throws,
// or sends a request to anything but the server.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { chromium } from "playwright-core";

const ROOT = resolve(import.meta.dirname, "../../../..");
const BINARY = process.env.NOREN_BIN ?? join(ROOT, "target/release/noren");
const BROWSER = process.env.CHROMIUM ?? "/usr/bin/chromium";
const SWITCHES = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--force-device-scale-factor=1",
  "--font-render-hinting=none",
];

/** The repository, for files that tests read and write. */
export const root = ROOT;

/** Starts `noren serve`: `{address, stop()}`. */
async function serve() {
  const server = spawn(BINARY, ["serve", "--port", "0"], { stdio: ["ignore", "pipe", "inherit"] });
  const address = await new Promise((found, failed) => {
    let said = "";
    server.stdout.on("data", (chunk) => {
      said += chunk;
      const line = /http:\/\/[\w.[\]:]+\/?/.exec(said.slice(0, said.lastIndexOf("\n") + 1));
      if (line) found(line[0].replace(/\/?$/, "/"));
    });
    server.on("error", failed);
    server.on("exit", (code) => failed(new Error(`${BINARY} serve ended with ${code}: ${said}`)));
  });
  return { address, stop: () => server.kill() };
}

/** Starts a server and a browser; `close()` ends both, `open` opens a page. */
export async function explorer() {
  const server = await serve();
  const profile = mkdtempSync(join(tmpdir(), "noren-page-"));
  const browser = await chromium.launchPersistentContext(profile, {
    executablePath: BROWSER,
    args: SWITCHES,
    viewport: null,
    acceptDownloads: true,
  });

  /**
   * Opens the page with a state (an object, or the fragment as a string): `theme` is light or dark, `motion` enables animations.
   * Returns Playwright's page with `finish()`, which closes the page and fails if an error occurred on it.
   */
  async function open(state = {}, { theme = "light", width = 1440, height = 900, motion = false } = {}) {
    const page = await browser.newPage();
    const problems = [];
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme: theme, reducedMotion: motion ? "no-preference" : "reduce" });
    page.on("console", (message) => ["error", "warning"].includes(message.type()) && problems.push(`console: ${message.text()}`));
    page.on("pageerror", (error) => problems.push(`thrown: ${error.stack}`));
    page.on("request", (request) => {
      if (!/^(data|blob):/.test(request.url()) && !request.url().startsWith(server.address))
        problems.push(`elsewhere: ${request.url()}`);
    });
    page.setDefaultTimeout(15_000);
    const extended = Object.assign(page, {
      problems,
      finish: async () => {
        await page.close();
        assert.deepEqual(problems, []);
      },
    });
    await page.goto(server.address);
    await page.evaluate(() => localStorage.clear());
    const fragment =
      typeof state === "string" ? state : await page.evaluate(async (to) => (await import("./js/state.js")).encode(to), state);
    if (fragment) {
      // Loads the page as a new link: a page that is already open would only read the new fragment.
      await page.goto("about:blank");
      await page.goto(`${server.address}#${fragment}`);
    }
    await page.waitForFunction(() => document.documentElement.dataset.ready);
    return extended;
  }

  return {
    address: server.address,
    open,
    async close() {
      await browser.close();
      server.stop();
      rmSync(profile, { recursive: true, force: true });
    },
  };
}

/** Waits until everything in the window of the picture is drawn. */
export const settled = (page, selector = ".picture") =>
  page.waitForFunction((at) => document.querySelector(at)?.dataset.settled, selector, { timeout: 15_000 });

/** Returns the cover of a cell in the page: 0 denied, 1 some, 2 allowed, 3 unknown. */
export const cover = (page, q, k) =>
  page.evaluate(
    ([row, key]) => {
      const found = document.querySelector(".picture").picture.cell(row, key);
      return found && found.byte & 3;
    },
    [q, k],
  );

/** Returns the whole mask, a string of `#` and `.` for each query. */
export async function drawn(page) {
  await settled(page);
  return page.evaluate(() => {
    const { picture } = document.querySelector(".picture");
    return Array.from({ length: picture.camera.qLen }, (_, q) =>
      Array.from({ length: picture.camera.kvLen }, (_, k) => ".+#?"[picture.cell(q, k).byte & 3]).join(""),
    );
  });
}

/** Replaces the text of the editor by a mask. */
export async function say(page, mask, label = "Mask") {
  const editor = page.getByRole("textbox", { name: label, exact: true });
  await editor.click();
  await page.keyboard.press("Control+A");
  await page.keyboard.type(mask);
  await page.keyboard.press("Escape");
}

/** Returns the colour of the middle of a cell on the screen. */
export const pixel = (page, q, k) =>
  page.evaluate(
    ([row, key]) => {
      const { element, camera } = document.querySelector(".picture").picture;
      const copy = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
      copy.drawImage(element.querySelector("canvas"), -Math.floor(camera.x(key + 0.5)), -Math.floor(camera.y(row + 0.5)));
      return [...copy.getImageData(0, 0, 1, 1).data.slice(0, 3)];
    },
    [q, k],
  );
