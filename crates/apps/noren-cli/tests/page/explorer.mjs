// A real server and a real browser for the tests of a file. A page fails its test if it logs an error or a warning in the console, throws,
// or sends a request to anything but the server.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const ROOT = resolve(import.meta.dirname, "../../../../..");
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
/** The command `noren`. */
export const binary = BINARY;

/** Starts `noren serve`: `{address, output(), stop()}`. `output` returns everything that the server has printed. */
async function serve() {
  const server = spawn(BINARY, ["serve", "--port", "0"], { stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  server.stderr.on("data", (chunk) => {
    said += chunk;
    process.stderr.write(chunk);
  });
  const address = await new Promise((found, failed) => {
    server.stdout.on("data", (chunk) => {
      said += chunk;
      const line = /http:\/\/[\w.[\]:]+\/?/.exec(said.slice(0, said.lastIndexOf("\n") + 1));
      if (line) found(line[0].replace(/\/?$/, "/"));
    });
    server.on("error", failed);
    server.on("exit", (code) => failed(new Error(`${BINARY} serve ended with ${code}: ${said}`)));
  });
  return { address, output: () => said, stop: () => server.kill() };
}

/**
 * Answers requests for files of the page from the folder `NOREN_PAGE`, if it is set: edited files are tested without building the program
 * again. The browser of the tests does this; the server knows nothing of it.
 */
async function fromFolder(browser, address) {
  const folder = process.env.NOREN_PAGE;
  if (!folder) return;
  const types = { html: "text/html", css: "text/css", js: "text/javascript", json: "application/json", svg: "image/svg+xml" };
  await browser.route(`${address}**`, async (route) => {
    const path = new URL(route.request().url()).pathname.replace(/^\/$/, "/index.html");
    const file = join(resolve(folder), path);
    if (path.startsWith("/api/") || !existsSync(file)) return route.fallback();
    const { headers } = await fetch(address);
    const policy = { "content-security-policy": headers.get("content-security-policy") };
    return route.fulfill({ body: readFileSync(file), contentType: types[path.split(".").at(-1)], headers: policy });
  });
}

/** Starts a browser; `close()` ends it, `newPage` opens an empty page. */
async function launch() {
  const profile = mkdtempSync(join(tmpdir(), "noren-page-"));
  const browser = await chromium.launchPersistentContext(profile, {
    executablePath: BROWSER,
    args: SWITCHES,
    viewport: null,
    acceptDownloads: true,
  });

  /**
   * Opens an empty page, which may only send requests to addresses that begin with `address` (later `page.allowed`). `theme` is light or dark,
   * `motion` enables animations. Returns Playwright's page with `finish()`, which closes the page and fails if an error occurred on it.
   */
  async function newPage(address, { theme = "light", width = 1440, height = 900, motion = false } = {}) {
    const page = await browser.newPage();
    const problems = [];
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme: theme, reducedMotion: motion ? "no-preference" : "reduce" });
    page.on("console", (message) => ["error", "warning"].includes(message.type()) && problems.push(`console: ${message.text()}`));
    page.on("pageerror", (error) => problems.push(`thrown: ${error.stack}`));
    page.on("request", (request) => {
      if (!/^(data|blob):/.test(request.url()) && !request.url().startsWith(page.allowed)) problems.push(`elsewhere: ${request.url()}`);
    });
    page.setDefaultTimeout(60_000);
    let pending = 0;
    page.on("request", () => (pending += 1));
    for (const end of ["requestfinished", "requestfailed"]) page.on(end, () => (pending -= 1));
    return Object.assign(page, {
      allowed: address,
      problems,
      pending: () => pending,
      finish: async () => {
        await page.close();
        assert.deepEqual(problems, []);
      },
    });
  }

  return {
    context: browser,
    newPage,
    profile,
    stop: () => browser.close(),
    async close() {
      await browser.close();
      rmSync(profile, { recursive: true, force: true });
    },
  };
}

/** Starts a browser for files; `close()` ends it, `open` opens a web page that is a file, in `page` if it is given. */
export async function files() {
  const browser = await launch();
  return {
    async open(path, look, page = null) {
      const address = pathToFileURL(path).href;
      const shown = page ?? (await browser.newPage(address, look));
      shown.allowed = address;
      await shown.goto(address);
      await shown.waitForFunction(() => document.documentElement.dataset.ready);
      return shown;
    },
    close: browser.close,
  };
}

/**
 * Starts a server and a browser; `close()` ends both, `open` opens a page. `profile` is the folder in which the browser stores its data, and
 * `stop()` ends the browser without removing this folder.
 */
export async function explorer() {
  const server = await serve();
  const browser = await launch();
  await fromFolder(browser.context, server.address);
  // A page that stays open: it makes the links of the tests' pages, and removes what earlier pages stored.
  const link = await browser.newPage(server.address);
  await link.goto(server.address);

  /** Opens the page with a state (an object, or the fragment as a string). `look` is as in `newPage`. */
  async function open(state = {}, look = {}) {
    const fragment = await link.evaluate(async (to) => {
      localStorage.clear();
      return typeof to === "string" ? to : (await import("./js/base/state.js")).encode(to);
    }, state);
    const page = await browser.newPage(server.address, look);
    await page.goto(`${server.address}${fragment ? `#${fragment}` : ""}`);
    await page.waitForFunction(() => document.documentElement.dataset.ready);
    return page;
  }

  return {
    address: server.address,
    context: browser.context,
    profile: browser.profile,
    stop: browser.stop,
    output: server.output,
    open,
    async close() {
      await browser.close();
      server.stop();
    },
  };
}

/** Waits until everything in the window of the picture is drawn. */
export const settled = (page, selector = ".picture") =>
  page.waitForFunction((at) => document.querySelector(at)?.dataset.settled, selector, { timeout: 60_000 });

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
  const rows = await page.waitForFunction(() => {
    const element = document.querySelector(".picture");
    if (!element?.dataset.settled) return null;
    const { picture } = element;
    return Array.from({ length: picture.camera.qLen }, (_, q) =>
      Array.from({ length: picture.camera.kvLen }, (_, k) => ".+#?"[picture.cell(q, k).byte & 3]).join(""),
    );
  });
  return rows.jsonValue();
}

/** Replaces the text of the editor by a mask. */
export async function say(page, mask, label = "Mask") {
  const editor = page.getByRole("textbox", { name: label, exact: true });
  await editor.click();
  await page.keyboard.press("Control+A");
  await page.keyboard.type(mask);
  await page.keyboard.press("Escape");
}

/** Waits until the page has drawn all changes so far. A change of size is noticed in one frame and drawn in the next. */
export const painted = (page) =>
  page.evaluate(async () => {
    for (let frame = 0; frame < 3; frame += 1) await new Promise((next) => requestAnimationFrame(next));
  });

/** Waits for a time of the page, after everything that the page does earlier. */
export const rests = (page, ms) => page.evaluate((time) => new Promise((done) => setTimeout(done, time)), ms);

/** Waits until the page rests: no request is pending, and for longer than any delay of the page nothing has changed on it. */
export async function rested(page) {
  do {
    await page.evaluate(() => new Promise((done, fail) => {
      const rest = () => setTimeout(() => done(watch.disconnect()), 300);
      let timer = rest();
      const watch = new MutationObserver(() => {
        clearTimeout(timer);
        timer = rest();
      });
      watch.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
      setTimeout(() => fail(new Error("the page does not rest")), 60_000);
    }));
  } while (page.pending() > 0);
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

/** Delays requests to `pattern` until the returned function is called. */
export async function hold(page, pattern) {
  let release = null;
  const held = new Promise((free) => (release = free));
  await page.route(pattern, async (route) => {
    await held;
    await route.continue().catch(() => {}); // aborted by the page meanwhile
  });
  return release;
}
