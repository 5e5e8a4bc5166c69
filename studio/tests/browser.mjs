// The distribution's Chromium, driven by Playwright, and a studio to look at.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const here = dirname(fileURLToPath(import.meta.url));
export const program = process.env.ADJOINT ?? join(here, "../../build/release/adjoint");
const browser_path =
  process.env.CHROMIUM ??
  ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((p) => existsSync(p));

export async function start_studio({
  folder = mkdtempSync(join(tmpdir(), "studio-test-")),
  port,
  page_of = process.env.PAGE,
} = {}) {
  const flags = ["--no-open", ...(port ? ["--port", port] : []), ...(page_of ? ["--page", page_of] : [])];
  const child = spawn(program, ["studio", folder, ...flags], { stdio: ["ignore", "pipe", "inherit"] });
  const address = await new Promise((done, fail) => {
    let said = "";
    child.stdout.on("data", (d) => {
      said += d;
      const m = /https?:\/\/127\.0\.0\.1:\d+\/\S*/.exec(said);
      if (m) done(m[0]);
    });
    child.on("exit", (code) => fail(new Error(`the studio ended with ${code}: ${said}`)));
    setTimeout(() => fail(new Error(`the studio said no address: ${said}`)), 20_000).unref();
  });
  return {
    address,
    folder,
    child,
    stop: () =>
      new Promise((done) => {
        child.removeAllListeners("exit");
        if (child.exitCode !== null) return done();
        child.on("exit", done);
        child.kill("SIGTERM");
      }).then(() => rmSync(folder, { recursive: true, force: true })),
  };
}
export function start_browser() {
  return chromium.launch({
    executablePath: browser_path,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
}
export async function open_page(browser, address, { width = 1280, height = 800, dark = false } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light" });
  const page = await context.newPage();
  page.mistakes = [];
  page.on("pageerror", (e) => page.mistakes.push(e.message));
  page.on("console", (m) => {
    if (m.type() === "error" && !/404|409|Failed to load resource/.test(m.text())) page.mistakes.push(m.text());
  });
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
