// What tests share: waiting until all answers are there and drawn, holding answers back, the accessibility checker (of the view and the
// stack; the whole page has a test of its own), and pictures to look at (SHOTS=folder).
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { open_page } from "./browser.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
// All that was changed is answered, and drawn: also what was typed a moment ago, of which nothing is asked yet. What answers became is
// in the page when it stays the same from one frame to the next.
export async function settled(page) {
  let was = -1;
  for (;;) {
    await page.waitForFunction(
      () => {
        const r = window.__studio.results;
        return (
          r.forward.value &&
          !r.pending &&
          ![r.forward, r.plan, r.step, r.timeline, r.states, r.plain].some((l) => l.busy) &&
          window.__studio.is_drawn()
        );
      },
      null,
      { timeout: 60_000 },
    );
    const now = await page.evaluate(
      () =>
        new Promise((done) =>
          requestAnimationFrame(() =>
            requestAnimationFrame(() => {
              const r = window.__studio.results;
              const still = !r.pending && window.__studio.is_drawn();
              done(still ? document.querySelectorAll("#view svg *").length : -1);
            }),
          ),
        ),
    );
    if (now >= 0 && now === was) return;
    was = now;
  }
}
// The whole drawing in the window, where the last frame has put it.
export async function fit(page) {
  await settled(page);
  await page.click("button[aria-label^='Fit']");
  await frames(page, 2);
}
export const key = (k) => `[data-key="${k}"]`;
export const text_of = (page) => page.evaluate(() => window.__studio.project.text?.text ?? "");
export const wait_text = (page, selector, wanted) =>
  page.waitForFunction(
    ([s, w]) => [...document.querySelectorAll(s)].some((e) => e.textContent.includes(w)),
    [selector, wanted],
    { timeout: 30_000 },
  );
export const wait_for_text = async (page, wanted) =>
  page
    .waitForFunction((t) => window.__studio.project.text?.text === t, wanted, { timeout: 30_000 })
    .catch(async () => assert.equal(await text_of(page), wanted));
export const ask = (page, args) =>
  page.evaluate(
    (a) =>
      fetch("api/ask", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ args: a }),
      })
        .then((r) => r.json())
        .then((r) => r.result),
    args,
  );
// The text of a preset.
export const library_text = async (page, model) =>
  (await ask(page, ["show", "--model", model, "--text", "--json"])).text;
// What a request asks of the program, of those that ask something.
export function question(request) {
  try {
    return request.postDataJSON() ?? {};
  } catch {
    return {};
  }
}
// Requests of this address that are this one wait until they are let go.
export async function hold(page, address, which = () => true) {
  const held = [],
    waiting = [];
  let open = false;
  const handler = async (route) => {
    if (open || !which(route.request())) return route.fallback();
    held.push(route);
    for (const look of waiting) look();
  };
  await page.route(address, handler);
  return {
    held,
    // So many wait.
    holds: (n) =>
      new Promise((done) => {
        const look = () => held.length >= n && done();
        waiting.push(look);
        look();
      }),
    release: async () => {
      open = true;
      // A question that was given up meanwhile cannot go on.
      for (const route of held.splice(0)) await route.continue().catch(() => {});
      await page.unroute(address, handler);
    },
  };
}
// A good message goes after a few seconds: from the next load on the page keeps what its line of messages said.
export const keep_messages = (page) =>
  page.addInitScript(() => {
    window.__said = [];
    const look = () => {
      for (const { textContent } of document.querySelectorAll(".banner"))
        if (window.__said.at(-1) !== textContent) window.__said.push(textContent);
    };
    new MutationObserver(look).observe(document, { childList: true, characterData: true, subtree: true });
  });
export const was_said = (page, wanted) =>
  page.waitForFunction((w) => window.__said.some((text) => text.includes(w)), wanted, { timeout: 30_000 });
// What is in the editor is on disk.
export const saved = (page, path) =>
  page.waitForFunction(
    (p) => {
      const t = window.__studio.project.find(p);
      return t && t.etag !== null && t.text === t.saved;
    },
    path,
    { timeout: 30_000 },
  );
// A page of its own, with nothing remembered.
export async function fresh(browser, studio, options) {
  const page = await open_page(browser, studio.address, options);
  await page.waitForSelector(".arrow", { timeout: 30_000 });
  await page.waitForFunction(() => window.__studio.results.functors.length > 0);
  return page;
}
// The smallest preset as a file of the folder, opened; the text may be another one.
export async function own_model(page, studio, name, change = (text) => text) {
  const text = change(await library_text(page, "char"));
  writeFileSync(join(studio.folder, name), text);
  await page.evaluate((n) => window.__studio.open_model(n), `${name}:char`);
  await page.waitForFunction(
    (n) => window.__studio.results.forward.value?.model?.includes("char") && window.__studio.project.active === n,
    name,
    { timeout: 30_000 },
  );
  await settled(page);
  return text;
}
export async function set(page, { model = "char", batch = 4, sets = {}, stack = "" }) {
  await page.evaluate(
    (s) => {
      const { settings } = window.__studio;
      settings.model = s.model;
      settings.batch = s.batch;
      settings.sets = s.sets;
      settings.set_stack(s.stack);
    },
    { model, batch, sets, stack },
  );
  await frames(page, 3);
  await settled(page);
}
export const tab = (page, id) => page.click(`#tab-${id}`);
// What the accessibility checker has to say, in one line each.
export async function complaints(page, of = { include: [["#view"], ["section.stack"]] }, how = {}) {
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(axe);
  const found = await page.evaluate(
    ([context, options]) => window.axe.run(context ?? document, { resultTypes: ["violations"], ...options }),
    [of, how],
  );
  return found.violations.map(
    (v) =>
      `${v.id}: ${v.help}: ${v.nodes
        .slice(0, 3)
        .map((n) => n.html.slice(0, 200))
        .join(" | ")}`,
  );
}
// So many times the page was drawn: what it does by itself after a change is done.
export const frames = (page, n = 3) =>
  page.evaluate(
    (k) =>
      new Promise((done) => {
        const next = (left) => (left > 0 ? requestAnimationFrame(() => next(left - 1)) : done());
        next(k);
      }),
    n,
  );
// Light and dark, narrow and wide; nothing may be wider than what it stands in.
export async function pictures(page, name) {
  const cut = [];
  for (const dark of process.env.SHOTS ? [false, true] : [false])
    for (const [width, height] of [
      [1280, 800],
      [1920, 1080],
    ]) {
      await page.emulateMedia({ colorScheme: dark ? "dark" : "light" });
      await page.setViewportSize({ width, height });
      await frames(page, process.env.SHOTS ? 15 : 6);
      const wide = await page.evaluate(() => {
        const v = document.querySelector("#view .scroll");
        return v && v.scrollWidth > v.clientWidth + 1 ? `${v.className}: ${v.scrollWidth} in ${v.clientWidth}` : "";
      });
      if (wide) cut.push(`${name} ${width}: ${wide}`);
      if (process.env.SHOTS)
        await page.screenshot({ path: join(process.env.SHOTS, `${name}-${dark ? "dark" : "light"}-${width}.png`) });
    }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 1280, height: 800 });
  return cut;
}
// A text with something to learn: a few words in an order that a fixed sequence of numbers gives.
export function book() {
  const words = ["the", "king", "said", "to", "his", "horse", "and", "went", "home", "again", "while", "it", "rained"];
  let seed = 7,
    out = "";
  for (let i = 0; i < 9000; i++) {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    out += words[Math.floor(seed / 65536) % words.length] + (i % 11 === 10 ? ".\n" : " ");
  }
  return out;
}
