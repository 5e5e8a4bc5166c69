// Which operand an edit of an arrow changes: the one that the arrow is, wherever it stands in the call. A parameter, a number and an
// argument by name are operands of the text, and no other place of the list.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { close_all, start_browser, start_studio } from "./browser.mjs";
import { fit, fresh, key, settled, text_of, wait_for_text, wait_text } from "./look.mjs";

const models = join(dirname(fileURLToPath(import.meta.url)), "../../models");
const library = (name) => readFileSync(join(models, `${name}.scheme`), "utf8");
const small = `axes hidden=8 heads=2 context=8 vocab=16
numbers rate=0

twice t[batch, seq, hidden], u[batch, seq, hidden]:
  y = tanh(t) - u

model tokens[batch, seq], targets[batch, seq]:
  x = embed(tokens, vocab, name=wte)
  gain = param(hidden, init=ones)
  t = tanh(x)
  x = x + gain*t
  x = x + 0.1*t
  z = gain*dropout(t, rate)
  a = attention(x, heads, causal, v=gelu(t), k=z, window=4 when rate == 1)
  x = twice(a, x)
  x = x*x
  x = x + 0.5*gain
  loss = cross_entropy(linear(x, vocab, name=readout), targets)
`;
let studio, browser, page, text, name;
async function open(as, model, preset = "", boxes = []) {
  [name, text] = [as, model];
  writeFileSync(join(studio.folder, name), text);
  await page.evaluate((m) => window.__studio.open_model(m), preset ? `${name}:${preset}` : name);
  await page.waitForFunction((n) => window.__studio.project.active === n, name);
  await settled(page);
  assert.equal(await page.evaluate(() => window.__studio.results.forward.mistake?.message ?? ""), "");
  for (const box of boxes) {
    await page.waitForSelector(key(box));
    await page.evaluate((b) => window.__studio.view.toggle(b, true), box);
  }
  await fit(page);
}
async function again() {
  await page.evaluate((n) => window.__studio.project.reload(n), name);
  await wait_for_text(page, text);
  await settled(page);
}
async function choose(of, entry, typed) {
  await page.waitForSelector(key(of));
  await page.evaluate(() => (window.__studio.project.message = null));
  await page.locator(key(of)).first().dispatchEvent("contextmenu", { clientX: 400, clientY: 200 });
  await page.getByRole("menuitem", { name: entry }).first().click();
  if (typed === undefined) return;
  await page.locator(".menu input").fill(typed);
  await page.keyboard.press("Enter");
}
async function becomes(from, to) {
  assert.ok(text.includes(from), from);
  await wait_for_text(page, text.replace(from, to));
  await settled(page);
  await again();
}

before(async () => {
  studio = await start_studio();
  browser = await start_browser();
  page = await fresh(browser, studio);
});
after(close_all);

test("an op before a call is on the arrow that is meant, beside a parameter, a number or arguments by name", async () => {
  await open("small.scheme", small, "", ["twice"]);
  await choose("mul#1", /^Insert an op before it/, "tanh");
  await becomes("gain*t\n", "gain*tanh(t)\n");
  await choose("scale#1", /^Insert an op before it/, "tanh");
  await becomes("0.1*t", "0.1*tanh(t)");
  // A dropout of 0 is no call of the model, and stands in the text between an arrow and its call.
  await choose("mul#2", /^Insert an op before it/, "tanh");
  await becomes("gain*dropout(t, rate)", "gain*tanh(dropout(t, rate))");
  await choose("attention#1", /^Insert an op before it, on z/, "relu");
  await becomes("k=z", "k=relu(z)");
  await choose("attention#1", /^Read another value instead of z/, "t");
  await becomes("k=z", "k=t");
  await choose("twice.sub#1", /^Insert an op before it, on x/, "gelu");
  await becomes("tanh(t) - u", "tanh(t) - gelu(u)");
});
test("an arrow that the text says twice, or not at all, is not guessed", async () => {
  await choose("mul#3", /^Insert an op before it/, "tanh");
  await wait_text(page, "body", "This call reads x more than once");
  assert.equal(await text_of(page), text);
});
test("an arrow is found in the models of the library", async () => {
  await open("unet.scheme", library("u_net"), "u-net-tiny", ["up^"]);
  await choose("up[0].mul#1", /^Insert an op before it/, "tanh");
  await becomes("gain*skip", "gain*tanh(skip)");
  await choose("up[0].mul#1", /^Read another value/, "x");
  await becomes("gain*skip", "gain*x");
  await open("scaled.scheme", library("layer_scale"), "layer-scale-tiny", ["block^"]);
  await choose("block[0].scale#2", /^Insert an op before it/, "tanh");
  await becomes(
    "merge(sqrt(dim)*unit(rotary(linear(n, hidden, bias=no, name=k), heads, base)))",
    "merge(sqrt(dim)*tanh(unit(rotary(linear(n, hidden, bias=no, name=k), heads, base))))",
  );
  await choose("block[0].attention#1", /^Insert an op before it, on v/, "tanh");
  await becomes("k=k, v=v", "k=k, v=tanh(v)");
});
test("what is deleted leaves the object on its arrow, not a number or a parameter", async () => {
  await open("small.scheme", small);
  await choose("scale#1", "Delete");
  await becomes("x + 0.1*t", "x + t");
  await choose("mul#1", "Delete");
  await becomes("gain*t\n", "t\n");
  await choose("scale#2", "Delete");
  await wait_text(page, ".banner", "reads no object that could take its place");
  assert.equal(await text_of(page), text);
  assert.deepEqual(page.mistakes, []);
});
