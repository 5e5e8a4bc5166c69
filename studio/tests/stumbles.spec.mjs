// Where a newcomer stumbled: what is closed stays in sight, what is inserted leaves the order of the rest, a drag shows where it may end,
// and what is open says all of itself.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close_all, says, start_browser, start_studio } from "./browser.mjs";
import { fit, fresh, key, settled, tab } from "./look.mjs";

const llama = `axes layers=4 hidden=64 heads=4 ffn=160 context=64 vocab=65

block x[batch, seq, hidden]:
  n = rms_norm(x)
  q = rotary(linear(n, hidden, bias=no, name=q), heads)
  k = rotary(linear(n, hidden, bias=no, name=k), heads)
  v = linear(n, hidden, bias=no, name=v)
  a = attention(q, heads, causal, k=k, v=v)
  x = x + linear(a, hidden, bias=no, name=o)
  n = rms_norm(x)
  h = silu(linear(n, ffn, bias=no, name=gate)) * linear(n, ffn, bias=no, name=up)
  x = x + linear(h, hidden, bias=no, name=down)

model tokens[batch, seq], targets[batch, seq]:
  x = block^layers(embed(tokens, vocab, name=wte))
  logits = linear(rms_norm(x), vocab, bias=no, weight=wte, name=readout)
  loss = cross_entropy(logits, targets)
`;
let studio, browser, page;
async function open(text = llama) {
  await page?.context().close();
  page = await fresh(browser, studio);
  writeFileSync(join(studio.folder, "mine.scheme"), text);
  await page.evaluate(() => window.__studio.open_model("mine.scheme"));
  await page.waitForFunction(() => window.__studio.project.active === "mine.scheme");
  await settled(page);
}
async function open_box(k, inside) {
  await page.dblclick(`.arrow ${key(k)}`);
  await page.waitForSelector(inside);
  await settled(page);
}
async function close_box(k) {
  await page.keyboard.press("Escape");
  await page.waitForSelector(`.arrow ${key(k)}`);
  await settled(page);
}
// A thing is inside of the window onto the drawing, all of it.
async function in_sight(k) {
  const [it, window] = await page.evaluate(
    (s) => [s, ".diagram"].map((q) => document.querySelector(q).getBoundingClientRect().toJSON()),
    key(k),
  );
  const where = JSON.stringify([it, window]);
  assert.ok(it.left >= window.left && it.right <= window.right && it.top >= window.top, where);
  assert.ok(it.bottom <= window.bottom, where);
}
const crumbs = () => page.locator(".crumbs button").allTextContents();
const height = async (k) => (await page.locator(key(k)).first().boundingBox()).y;

// A thing hears that something is over it from the second movement on.
async function drag_over(x, y) {
  await page.mouse.move(x, y, { steps: 4 });
  await page.mouse.move(x + 1, y);
}

before(async () => {
  studio = await start_studio();
  browser = await start_browser();
});
after(close_all);

test("Escape closes what is around, which stays in sight, and the path says what is selected", async () => {
  await open();
  await open_box("block^", key("block[0].attention#1"));
  await open_box("block[0].attention#1", `.frame ${key("block[0].attention#1")}`);
  await close_box("block[0].attention#1");
  await in_sight("block[0].attention#1");
  await close_box("block^");
  await in_sight("block^");
  await in_sight("(readout)");
  assert.ok((await page.locator(".arrow .label").count()) > 2);
  assert.deepEqual((await crumbs()).slice(1), ["block^"]);
  // Also where all others are beside it and the drawing is larger than the window.
  await open_box("block^", key("block[0].attention#1"));
  await close_box("block^");
  await in_sight("block^");
});
test("an op that is inserted leaves branches in their order, and is selected", async () => {
  await open();
  await open_box("block^", key("block[0].down"));
  await fit(page);
  const order = async () => {
    const at = {};
    for (const k of ["q", "k", "v"]) at[k] = await height(`block[0].${k}`);
    for (const k of ["gate", "up"]) at[k] = await height(`block[0].${k}`);
    return Object.keys(at).sort((a, b) => at[a] - at[b]);
  };
  assert.deepEqual(await order(), ["q", "k", "v", "gate", "up"]);
  await page.locator(`.arrow ${key("block[0].down")}`).click({ button: "right" });
  await page.getByRole("menuitem", { name: /Insert an op behind/ }).click();
  await page.keyboard.type("dropout(0.1)");
  await page.keyboard.press("Enter");
  await page.waitForSelector(`.arrow.chosen ${key("block[0].dropout#1")}`);
  await settled(page);
  assert.deepEqual(await order(), ["q", "k", "v", "gate", "up"]);
});
test("what is gathered says what it is made of", async () => {
  await open();
  await page.click(`.arrow ${key("(readout)")}`);
  const sums = await page.evaluate(() => {
    const { morphisms } = window.__studio.results.forward.value.scheme;
    return morphisms.filter((m) => /^(rms_norm#?\d*|readout)$/.test(m.source)).reduce((n, m) => n + m.flops, 0);
  });
  assert.ok(sums > 0);
  await says(page, ".inspector dl", /morphisms\s*2\s*FLOPs\s*[1-9]/);
});
test("a drag marks where it may end", async () => {
  await open();
  await open_box("block^", key("block[0].down"));
  await page.getByRole("button", { name: "Ops" }).click();
  const down = await page.locator(`.arrow ${key("block[0].down")}`).boundingBox();
  await page.locator(".ops li", { hasText: /^\s*dropout\s*$/ }).hover();
  await page.mouse.down();
  await drag_over(down.x + down.width / 2, down.y + down.height / 2);
  await page.waitForSelector(`.arrow.dropping ${key("block[0].down")}`);
  // Beside the line it is the line that is meant.
  const line = await page.evaluate(() => {
    const d = [...document.querySelectorAll(".diagram [data-line]")].find(
        (p) => p.getTotalLength() > 40 && p.dataset.line.startsWith("block^|"),
      ),
      { x, y } = d.getPointAtLength(d.getTotalLength() / 2).matrixTransform(d.getScreenCTM());
    return { x, y, key: d.dataset.line };
  });
  await drag_over(line.x, line.y + 5);
  await page.waitForSelector(".line.dropping", { state: "attached" }); // a straight line has no height
  await page.keyboard.press("Escape");
  await page.mouse.up();
  await page.waitForSelector(".dropping", { state: "detached" });
  await page.locator(".palette li", { hasText: "accumulate" }).hover();
  await page.mouse.down();
  await drag_over(down.x + down.width / 2, down.y + down.height / 2);
  await page.waitForSelector(".chips.target");
  assert.equal(await page.locator(".dropping").count(), 0);
  await page.mouse.up();
  await page.waitForSelector(".chips.target", { state: "detached" });
});
test("lists say whole names and scroll down, and laws have a legend", async () => {
  await open();
  await page.getByRole("button", { name: "Ops" }).click();
  const ops = await page.locator(".ops ul").evaluate((u) => ({
    sideways: u.scrollWidth > u.clientWidth,
    down: u.scrollHeight > u.clientHeight,
    cut: [...u.children].filter((l) => l.scrollWidth > l.clientWidth).map((l) => l.textContent.trim()),
  }));
  assert.deepEqual(ops, { sideways: false, down: true, cut: [] });
  await says(page, ".palette .legend", /= exact.*≈ reassociating.*~ approximating/);
  const setter = page.locator(".setter");
  const room = await setter.evaluate((i) => {
    const c = document.createElement("canvas").getContext("2d");
    c.font = getComputedStyle(i).font;
    return i.clientWidth - 2 * parseFloat(getComputedStyle(i).paddingLeft) - c.measureText(i.placeholder).width;
  });
  assert.ok(room >= 0, `the placeholder lacks ${-room} pixels`);
});
test("the offer of a copy goes with the view it was made in", async () => {
  await page.context().close();
  page = await fresh(browser, studio);
  await page.getByRole("button", { name: "Change it…" }).click();
  await page.waitForSelector(".offer");
  await tab(page, "step");
  await page.waitForSelector(".offer", { state: "detached" });
});
test("a text that is broken from the first says so where its drawing would be", async () => {
  await open(llama.replace("rms_norm(x)\n  q", "rms_nor(x)\n  q"));
  await page.reload();
  await says(page, ".unread", /This text has a mistake in line 4: .*the drawing appears when it is mended/);
  writeFileSync(join(studio.folder, "mine.scheme"), llama);
  await page.waitForSelector(`.arrow ${key("block^")}`);
  assert.equal(await page.locator(".unread").count(), 0);
});
test("what an open op says has room in the window", async () => {
  await open();
  await open_box("block^", key("block[0].attention#1"));
  await open_box("block[0].attention#1", `.frame ${key("block[0].attention#1")}`);
  await in_sight("block[0].attention#1");
  assert.ok((await page.locator(".frame.op .body").count()) > 3);
  assert.deepEqual(page.mistakes, []);
});
