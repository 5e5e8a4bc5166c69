// Edits of the drawing that would take something from others ask first: names that formats know, the operand that stays, a size that
// other presets have as well.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close_all, program, start_browser, start_studio } from "./browser.mjs";
import { fresh, frames, key, own_model, settled, text_of, wait_for_text } from "./look.mjs";

let studio, browser, page, was;
const menu_of = (k) => page.locator(key(k)).first().dispatchEvent("contextmenu", { clientX: 500, clientY: 300 });
const choose = async (of, entry) => {
  await menu_of(of);
  await page.getByRole("menuitem", { name: entry }).first().click();
};
const question = () => page.locator(".banner .choice");
const asks = async (pattern) => {
  await question().first().waitFor();
  assert.match(await page.locator(".banner").textContent(), pattern);
};
const back = async () => {
  await page.evaluate(() => window.__studio.project.reload("asked.scheme"));
  await wait_for_text(page, was);
  await settled(page);
};
// Paths of the weights that a text has.
const weights = (text) => {
  const shown = JSON.parse(
    execFileSync(program, ["show", "--model", "asked.scheme:char", "--json"], {
      cwd: studio.folder,
      maxBuffer: 1 << 26,
    }),
  );
  assert.equal(readFileSync(join(studio.folder, "asked.scheme"), "utf8"), text, "the file is saved");
  return shown.scheme.objects.filter((o) => o.role === "parameter").map((o) => o.source);
};
const save = () => page.evaluate(() => window.__studio.project.save());

before(async () => {
  studio = await start_studio();
  browser = await start_browser();
  page = await fresh(browser, studio);
  was = await own_model(page, studio, "asked.scheme");
  await page.evaluate(() => window.__studio.view.toggle("block^", true));
  await page.waitForSelector(key("block[0].layer_norm#1"));
});
after(close_all);

test("a layer norm that a format knows is deleted when that is wanted, and the other one keeps its name", async () => {
  const before = weights(was);
  await choose("block[0].layer_norm#1", "Delete");
  await asks(/module "block\[\{l\}\]\.layer_norm#1" of format huggingface names nothing any more/);
  assert.equal(await text_of(page), was, "nothing is changed before the answer");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Change it all the same");
  await page.getByRole("button", { name: "Close this message" }).click();
  await frames(page, 5);
  assert.equal(await text_of(page), was);
  await choose("block[0].layer_norm#1", "Delete");
  await asks(/layer_norm#1/);
  await question().click();
  await wait_for_text(
    page,
    was
      .replace("linear(layer_norm(x, eps=eps), 3*hidden", "linear(x, 3*hidden")
      .replace("linear(layer_norm(x, eps=eps), ffn", 'linear(layer_norm(x, eps=eps, name="layer_norm#2"), ffn'),
  );
  await save();
  assert.deepEqual(
    weights(await text_of(page)),
    before.filter((w) => !/^block\[\d+\]\.layer_norm#1\./.test(w)),
  );
  // Things that are drawn afterwards are found again in the text.
  await settled(page);
  await choose("block[0].layer_norm#2", "Insert an op behind it…");
  await page.keyboard.type("tanh");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() =>
    window.__studio.project.text.text.includes('tanh(layer_norm(x, eps=eps, name="layer_norm#2"))'),
  );
  await page.evaluate((t) => window.__studio.project.reload("asked.scheme"), was);
  await page.locator(".cm-content").focus();
  for (let i = 0; i < 3 && (await text_of(page)) !== was; i++) await page.keyboard.press("Control+z");
  assert.equal(await text_of(page), was);
  await save();
});
test("an op without weights is inserted without a question", async () => {
  await settled(page);
  await choose("block[0].layer_norm#1", "Insert an op behind it…");
  await page.keyboard.type("tanh");
  await page.keyboard.press("Enter");
  await wait_for_text(
    page,
    was.replace("linear(layer_norm(x, eps=eps), 3*", "linear(tanh(layer_norm(x, eps=eps)), 3*"),
  );
  assert.equal(await question().count(), 0);
  await back();
});
test("a sum that is deleted leaves the operand that somebody chooses", async () => {
  await choose("block[0].add#1", "Delete");
  await asks(/What stays in the place of x \+ dropout\(a, dropout\)\?/);
  assert.deepEqual(await question().allTextContents(), ["x stays", "dropout(a, dropout) stays"]);
  await question().nth(1).click();
  await wait_for_text(page, was.replace("x = x + dropout(a, dropout)\n", "x = dropout(a, dropout)\n"));
  await back();
});
test("a size is changed in the preset that is looked at, and for all others only when that is wanted", async () => {
  const size = async () => {
    await choose("o:block[0].gelu#1", /Change the size ffn/);
    await page.locator(".menu input").fill("384");
    await page.keyboard.press("Enter");
  };
  await size();
  await page.waitForFunction(() => /ffn=384/.test(window.__studio.project.text.text));
  const changed = await text_of(page);
  assert.match(changed, /^preset char: .*vocab=65 ffn=384/m);
  assert.match(changed, /^axes .*ffn=4\*hidden /m);
  await back();
  await page.evaluate(() => window.__studio.open_model("asked.scheme"));
  await page.waitForSelector(key("o:block[0].gelu#1"));
  await settled(page);
  await size();
  await asks(/ffn is 4\*hidden here, for the presets gpt2, .*char.* too/);
  await page.getByRole("button", { name: "Close this message" }).click();
  await frames(page, 5);
  assert.equal(await text_of(page), was);
  await size();
  await asks(/ffn is/);
  await question().click();
  await wait_for_text(page, was.replace("ffn=4*hidden", "ffn=384"));
  assert.deepEqual(page.mistakes, []);
});
