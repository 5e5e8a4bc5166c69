// The distribution's Chromium, driven by Playwright, and a studio to look at. Whatever is started here ends with the test: by
// close_all, and where that is not reached, with the process.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const here = dirname(fileURLToPath(import.meta.url));
export const program = process.env.ADJOINT ?? join(here, "../../build/release/adjoint");
const browser_path =
  process.env.CHROMIUM ??
  ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((p) => existsSync(p));
const studios = new Set(),
  browsers = new Set();
process.on("exit", () => {
  for (const { child } of studios) child.kill("SIGKILL");
});
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => process.exit(1));

// At a port that was free a moment ago the start is tried for a while.
export async function start_studio({ port, ...how } = {}) {
  for (const until = Date.now() + 20_000; ;)
    try {
      return await start_once({ port, ...how });
    } catch (e) {
      if (!port || Date.now() > until) throw e;
      await new Promise((done) => setTimeout(done, 250));
    }
}
async function start_once({
  folder = mkdtempSync(join(tmpdir(), "studio-test-")),
  port,
  page_of = process.env.PAGE,
} = {}) {
  const flags = ["--no-open", ...(port ? ["--port", String(port)] : []), ...(page_of ? ["--page", page_of] : [])];
  const child = spawn(program, ["studio", folder, ...flags], { stdio: ["ignore", "pipe", "inherit"] });
  const studio = { address: "", folder, child, stop: () => stop(studio) };
  studios.add(studio);
  let timer;
  try {
    studio.address = await new Promise((done, fail) => {
      let said = "";
      child.stdout.on("data", (d) => {
        said += d;
        const m = /https?:\/\/127\.0\.0\.1:\d+\/\S*\s/.exec(said);
        if (m) done(m[0].trim());
      });
      child.on("error", fail);
      child.on("exit", (code) => fail(new Error(`the studio ended with ${code}: ${said}`)));
      timer = setTimeout(() => fail(new Error(`the studio said no address: ${said}`)), 30_000);
    });
  } catch (e) {
    child.kill("SIGKILL");
    studios.delete(studio);
    throw e;
  } finally {
    clearTimeout(timer);
    // A test that has failed ends, whether it stops its studio or not.
    child.unref();
    child.stdout.unref();
  }
  return studio;
}
async function stop(studio) {
  const { child, folder } = studio;
  if (child.exitCode === null && child.signalCode === null) {
    const ended = once(child, "exit");
    child.ref();
    child.kill("SIGTERM");
    child.kill("SIGCONT"); // it may be one that a test holds
    const late = setTimeout(() => child.kill("SIGKILL"), 10_000);
    await ended;
    clearTimeout(late);
  }
  studios.delete(studio);
  rmSync(folder, { recursive: true, force: true });
}
// A port that nobody has, and that no other studio tries by itself.
export async function free_port() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

// Says that it was not the page that failed: test_page.sh runs such a test once more.
function lost(why) {
  console.error(`browser: ${why}`);
  if (process.env.BROWSER_LOST) appendFileSync(process.env.BROWSER_LOST, `${why}\n`);
}
export async function start_browser() {
  const browser = await chromium
    .launch({
      executablePath: browser_path,
      timeout: 60_000,
      ...{ handleSIGINT: false, handleSIGTERM: false, handleSIGHUP: false }, // the browser ends with this process
      args: [
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
      ],
    })
    .catch((e) => {
      lost(`it did not start: ${e.message.split("\n")[0]}`);
      throw e;
    });
  browsers.add(browser);
  browser.on("disconnected", () => {
    if (browsers.delete(browser)) lost("it was killed");
  });
  return browser;
}
// What every test ends with, before it judges anything more.
export async function close_all() {
  const open = [...browsers];
  browsers.clear();
  await Promise.all([...open.map((b) => b.close()), ...[...studios].map((s) => s.stop())]);
}
export async function open_page(browser, address, { width = 1280, height = 800, dark = false } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light" });
  const page = await context.newPage();
  page.mistakes = [];
  page.on("pageerror", (e) => page.mistakes.push(e.message));
  page.on("console", (m) => {
    if (m.type() === "error" && !/404|409|Failed to load resource/.test(m.text())) page.mistakes.push(m.text());
  });
  page.on("crash", () => lost("it killed a page"));
  await page.goto(address);
  return page;
}

// Waits until an element says it: what a child process tells arrives when it arrives.
export async function says(page, selector, pattern) {
  const said = ([s, source]) => new RegExp(source).test(document.querySelector(s)?.textContent ?? "");
  await page.waitForFunction(said, [selector, pattern.source], { timeout: 30_000 }).catch(async () => {
    const text = await page.locator(selector).first().textContent({ timeout: 1000 });
    throw new Error(`${selector} does not say ${pattern}, but '${text}'`);
  });
}
