// Memory of a step whose body runs once per part of the batch: what is shown at a moment is what the program says of its place.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { close_all, start_browser, start_studio } from "./browser.mjs";
import { ask, complaints, frames, fresh, pictures, set, settled, tab } from "./look.mjs";

let studio, browser, page;
before(async () => {
  studio = await start_studio();
  browser = await start_browser();
  page = await fresh(browser, studio);
  await set(page, { model: "char", batch: 8 });
  await tab(page, "memory");
});
after(close_all);

const slider = () => page.locator("svg[role=slider]");
async function go_to(moment) {
  await slider().focus();
  await page.keyboard.press("Home");
  for (let i = 0; i < Math.floor(moment / 20); i++) await page.keyboard.press("Shift+ArrowRight");
  for (let i = 0; i < moment % 20; i++) await page.keyboard.press("ArrowRight");
  assert.equal(Number(await slider().getAttribute("aria-valuenow")), moment);
}
// As the page writes it.
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let i = 0;
  for (; (i === 0 ? n : Math.round(n)) >= 1024; i++) n /= 1024;
  return `${i === 0 ? n : n >= 99.95 ? n.toFixed(0) : n.toFixed(1)} ${units[i]}`;
}
const planned = async (stack) =>
  (await ask(page, ["plan", "--model", "char", "--batch", "8", "--stack", stack, "--timeline", "--json"])).timeline;
const total = (t, moment) => Object.values(t.live).reduce((n, live) => n + live[t.calls[moment].place], 0);
// Per moment the height of an area's upper edge.
const heights = (d, moments) => {
  const points = [...d.matchAll(/[ML]([\d.-]+) ([\d.-]+)/g)].map((m) => Number(m[2]));
  return Array.from({ length: moments }, (_, i) => points[2 * i]);
};

for (const stack of ["accumulate(2)", "accumulate(4)", "bf16 | accumulate(2) | checkpoint(block)"])
  test(`${stack}: bytes, owners and products of every part are those of its places`, async () => {
    await set(page, { batch: 8, stack });
    const t = await planned(stack),
      n = t.calls.length;
    assert.ok(n > t.live.parameters.length, "the body occurs several times");
    await page.waitForFunction((k) => document.querySelector("svg[role=slider]")?.ariaValueMax === `${k - 1}`, n);
    await settled(page);
    // At rest it stands at the peak.
    await slider().focus();
    await page.keyboard.press("Escape");
    const peak = Number(await slider().getAttribute("aria-valuenow"));
    assert.equal(t.calls[peak].place, t.peak_at);
    assert.match(await slider().getAttribute("aria-valuetext"), new RegExp(`${bytes(t.peak_bytes)}$`));
    // The drawing: parts are alike, and the upper edge is what is alive.
    const drawn = await page
      .locator("svg[role=slider] > path[fill-opacity]")
      .evaluateAll((all) => all.map((p) => p.getAttribute("d")));
    const parts = t.sections.filter((s) => s.name.startsWith("part "));
    assert.equal(parts.length, t.parts);
    for (const d of drawn) {
      const y = heights(d, n);
      for (const p of parts)
        assert.deepEqual(y.slice(p.first, p.last + 1), y.slice(parts[0].first, parts[0].last + 1), p.name);
    }
    const most = Math.max(t.arena_bytes, t.peak_bytes),
      edge = heights(drawn.at(-1), n);
    for (let i = 0; i < n; i++) assert.ok(Math.abs(edge[i] - 230 * (1 - total(t, i) / most)) < 0.06, `moment ${i}`);
    // What is said, at moments of every section.
    const second = parts[1];
    for (const moment of [3, parts[0].first + 40, second.first, second.first + 77, second.last - 5, n - 9, n - 1]) {
      await go_to(moment);
      const { place, source } = t.calls[moment];
      const said = await slider().getAttribute("aria-valuetext");
      assert.ok(said.includes(source) && said.endsWith(bytes(total(t, moment))), `${moment}: ${said}`);
      const alive = t.owners.filter((o) => o.from <= place && place <= o.to).length;
      assert.equal(await page.locator(".memory th").first().textContent(), `alive: ${alive}`, `at ${moment}`);
      const part = parts.find((p) => p.first <= moment && moment <= p.last)?.name;
      assert.equal(/part \d+ of \d+/.exec(said)?.[0], part);
    }
    // Products stand in every part, where it is that block's turn.
    const { rows } = await ask(
      page,
      `show --model char --batch 8 --memory-states --json --stack`.split(" ").concat(stack),
    );
    assert.equal(await page.locator(".tick").count(), rows.length * t.parts);
    const row = rows.at(-2),
      there = t.calls.findIndex((c) => c.place === row.place && c.part === 1);
    await go_to(there);
    const head = (await page.locator(".memory h3").textContent()).replaceAll(/\s+/g, " ");
    assert.ok(head.includes(`${row.pass} ${row.block}, part 2 of ${t.parts}`), head);
    assert.ok(head.includes(bytes(row.bytes)), head);
    // An object of the body is marked once in every part.
    const mine = t.owners.find((o) => o.category === "activations" && o.source.startsWith("block[1]"));
    await page.evaluate((source) => window.__studio.view.select({ kind: "object", source }), mine.source);
    await frames(page);
    const owned = t.owners.filter((o) => o.source === mine.source).length;
    assert.equal(await page.locator("rect.mark").count(), owned * t.parts);
    await page.evaluate(() => (window.__studio.view.selected = []));
  });
test("a step of too many parts to list says that one stands for all", async () => {
  await set(page, { batch: 16, stack: "accumulate(16)" });
  await page.waitForFunction(() => /stands for all of 16/.test(document.querySelector(".memory").textContent));
});
test("it can be looked at in the dark, narrow and wide", async () => {
  await set(page, { batch: 8, stack: "accumulate(4)" });
  assert.deepEqual(await pictures(page, "memory-parts"), []);
  assert.deepEqual(await complaints(page), []);
  assert.deepEqual(page.mistakes, []);
});
