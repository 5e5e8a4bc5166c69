// The layout is stable: a small edit moves little. An op is inserted into the block of gpt2, and what is far from it keeps its place on
// the screen; what stands behind it makes room by the same distance for all.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close_all, open_page, start_browser, start_studio } from "./browser.mjs";
import { fit, fresh, key, library_text, set, settled, tab, wait_for_text } from "./look.mjs";

const name = "mine.scheme";
let studio, browser, page, text, inserted;
const places = async () => {
  await settled(page);
  return page.evaluate(() =>
    Object.fromEntries(
      [...document.querySelectorAll(".diagram [data-key]")].map((e) => {
        const { x, y } = e.getBoundingClientRect();
        return [e.dataset.key, { x, y }];
      }),
    ),
  );
};
// How far each thing went that was there before and is there now; the worst of them is said.
function moved(before, now, keys) {
  const all = Object.keys(before).filter((k) => keys.test(k) && now[k]);
  assert.ok(all.length > 0, `nothing is called ${keys}`);
  const by = all.map((k) => ({ key: k, x: now[k].x - before[k].x, y: now[k].y - before[k].y }));
  const most = (axis) => by.reduce((a, b) => (Math.abs(a[axis]) > Math.abs(b[axis]) ? a : b));
  return { count: by.length, by, x: most("x"), y: most("y") };
}
function keeps(before, now, keys, pixels) {
  const { x, y, count } = moved(before, now, keys);
  assert.ok(Math.abs(x.x) <= pixels, `of ${count} things ${x.key} went ${x.x} pixels along`);
  assert.ok(Math.abs(y.y) <= pixels, `of ${count} things ${y.key} went ${y.y} pixels up or down`);
}
// All of them go along by one distance, of at most so many pixels.
function makes_room(before, now, keys, pixels) {
  const { by, x, y } = moved(before, now, keys);
  assert.ok(Math.abs(x.x) <= pixels, `${x.key} went ${x.x} pixels along`);
  assert.ok(Math.abs(y.y) <= 1, `${y.key} went ${y.y} pixels up or down`);
  for (const one of by) assert.ok(Math.abs(one.x - x.x) <= 2, `${one.key} went ${one.x} pixels, and ${x.key} ${x.x}`);
}
async function insert(k) {
  await page.locator(key(k)).first().click({ button: "right" });
  await page.getByRole("menuitem", { name: /Insert an op behind/ }).click();
  await page.keyboard.type("tanh");
  await page.keyboard.press("Enter");
  await wait_for_text(page, inserted);
}
async function open() {
  await page?.context().close();
  page = await fresh(browser, studio, { width: 1600, height: 1000 });
  text ??= await library_text(page, "gpt2");
  const call = "gelu(linear(layer_norm(x, eps=eps), ffn, name=up))";
  inserted = text.replace(call, `tanh(${call})`);
  assert.notEqual(inserted, text);
  writeFileSync(join(studio.folder, name), text);
  await page.evaluate((n) => window.__studio.open_model(`${n}:gpt2`), name);
  await wait_for_text(page, text);
  await settled(page);
}

before(async () => {
  studio = await start_studio();
  browser = await start_browser();
});
after(close_all);

test("folded nothing moves", async () => {
  await open();
  const before = await places();
  writeFileSync(join(studio.folder, name), inserted);
  await wait_for_text(page, inserted);
  keeps(before, await places(), /./, 1);
});
test("of the open block, what stands before the new call keeps its place, and what stands behind makes room", async () => {
  await open();
  await page.dblclick(`.arrow ${key("block^")}`);
  await page.waitForSelector(key("block[0].gelu#1"));
  await fit(page);
  const before = await places();
  await insert("block[0].gelu#1");
  await page.waitForSelector(key("block[0].tanh#1"));
  const now = await places();
  keeps(before, now, /^(o:tokens|\(embed\)|o:add#1|block\^)$/, 1);
  keeps(before, now, /^(o:)?block\[0\]\.(layer_norm#\d|qkv|attention#1|proj|add#1|up)$|^block\[0\]\.gelu#1$/, 12);
  makes_room(before, now, /^\(readout\)|^o:readout|^\(loss\)|^o:cross_entropy#1|^o:targets/, 120);
  await page.locator(".cm-content").focus();
  await page.keyboard.press("Control+z");
  await wait_for_text(page, text);
  keeps(before, await places(), /./, 1);
});
test("of twelve blocks one is open: the others keep their rows, and their places but for the room it takes", async () => {
  await open();
  await page.locator(`.arrow ${key("block^")}`).focus();
  await page.keyboard.press("u");
  await page.waitForSelector(key("block[11]"));
  await fit(page);
  await page.dblclick(`.arrow ${key("block[3]")}`);
  await page.waitForSelector(key("block[3].gelu#1"));
  await fit(page);
  const before = await places();
  await insert("block[3].gelu#1");
  await page.waitForSelector(key("block[3].tanh#1"));
  const now = await places();
  keeps(before, now, /^(o:tokens|\(embed\)|o:add#1|block\^|block\[([0-35-9]|10|11)\])$/, 1);
  makes_room(before, now, /^block\[4\]$|^\(readout\)|^\(loss\)|^o:targets/, 80);
  assert.deepEqual(page.mistakes, []);
});
// At 1280 pixels the bar is one line, with every optimizer to choose from.
test("the bar stays one line at 1280 pixels", async () => {
  const page = await fresh(browser, studio, { width: 1280, height: 800 });
  await page.waitForFunction(() => document.querySelectorAll("[aria-label=Optimizer] option").length > 3);
  await settled(page);
  const heights = await page
    .locator("header button, header select")
    .evaluateAll((all) => all.map((e) => e.getBoundingClientRect().top));
  assert.ok(Math.max(...heights) - Math.min(...heights) < 20, heights.join());
  await page.context().close();
});
// A control that is cut off at a side of the window, or of the view, cannot be seen or clicked.
test("at 800 pixels no control is cut off", async () => {
  const page = await open_page(browser, studio.address, { width: 800, height: 700 });
  await page.waitForFunction(() => window.__studio?.results.functors.length > 0);
  await set(page, { model: "gpt2", batch: 8, stack: "checkpoint(every=2) | bf16" });
  for (const view of ["model", "step", "memory", "compare", "stack", "ranks", "runs"]) {
    if (view === "ranks") await set(page, { model: "gpt2", batch: 8, stack: "pipeline(2, parts=4)" });
    await tab(page, view);
    await settled(page);
    const cut = await page.evaluate(() => {
      const inside = document.querySelector("#view").getBoundingClientRect(),
        all = document.querySelectorAll("header, section.stack, [role=tablist], #view");
      return [...all].flatMap((around) => {
        const { left, right } = around.id === "view" ? inside : { left: 0, right: innerWidth };
        return [...around.querySelectorAll("button, select, input")]
          .filter((e) => e.checkVisibility() && !e.closest("svg, .chart, .scroll .scroll"))
          .map((e) => [e.getAttribute("aria-label") ?? e.textContent.trim(), e.getBoundingClientRect()])
          .filter(([, r]) => r.width > 0 && (r.left < left - 1 || r.right > right + 1))
          .map(([name, r]) => `${name}: ${Math.round(r.left)} to ${Math.round(r.right)}`);
      });
    });
    assert.deepEqual(cut, [], view);
  }
  await page.context().close();
});
