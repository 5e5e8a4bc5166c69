// What tests of views share: waiting until all answers are there, the accessibility checker (of the view and the stack; the whole page
// has a test of its own), and pictures to look at (SHOTS=folder).
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { open_page } from "./browser.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
// All that was changed is answered: also what was typed a moment ago, of which nothing is asked yet.
export const settled = (page) =>
  page.waitForFunction(
    () => {
      const r = window.__studio.results;
      return (
        r.forward.value && !r.pending && ![r.forward, r.plan, r.step, r.timeline, r.states, r.plain].some((l) => l.busy)
      );
    },
    null,
    { timeout: 60_000 },
  );
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
// A page of its own, with nothing remembered.
export async function fresh(browser, studio, options) {
  const page = await open_page(browser, studio.address, options);
  await page.waitForSelector(".arrow", { timeout: 30_000 });
  await page.waitForFunction(() => window.__studio.results.functors.length > 0);
  return page;
}
// The smallest preset as a file of the folder, opened; the text may be another one.
export async function own_model(page, studio, name, change = (text) => text) {
  const text = change((await ask(page, ["show", "--model", "char", "--text", "--json"])).text);
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
export async function complaints(page) {
  await page.evaluate(axe);
  const found = await page.evaluate(() =>
    window.axe.run({ include: [["#view"], ["section.stack"]] }, { resultTypes: ["violations"] }),
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
