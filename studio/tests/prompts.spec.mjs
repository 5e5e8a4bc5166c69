// The prompts of the drawing's edits: what is refused can be mended where it was typed, and a sentence goes when it is no longer so.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close_all, says, start_browser, start_studio } from "./browser.mjs";
import { fit, frames, fresh, key, settled, text_of, wait_for_text, wait_text } from "./look.mjs";

const text = `axes layers=2 hidden=8 context=8 vocab=16

feed t[batch, seq, hidden]:
  t = t + dropout(0.5*linear(gelu(t), hidden, name=up), 0.1)

model tokens[batch, seq], targets[batch, seq]:
  x = embed(tokens, vocab, name=wte)
  x = feed^layers(x)
  h = tanh(x)
  y = h + gelu(h)
  loss = cross_entropy(linear(y, vocab, name=readout), targets)
`;
let studio, browser, page;
async function ask(of, entry, typed) {
  await page.waitForSelector(key(of));
  await page.locator(key(of)).first().dispatchEvent("contextmenu", { clientX: 400, clientY: 200 });
  await page.getByRole("menuitem", { name: entry }).first().click();
  if (typed === undefined) return;
  await page.locator(".menu input").fill(typed);
  await page.keyboard.press("Enter");
}
async function undo() {
  await page.click(".cm-content");
  await page.keyboard.press("Control+z");
  await wait_for_text(page, text);
  await settled(page);
  await frames(page, 5); // and drawn
}
before(async () => {
  studio = await start_studio();
  browser = await start_browser();
  page = await fresh(browser, studio);
  writeFileSync(join(studio.folder, "mine.scheme"), text);
  await page.evaluate(() => window.__studio.open_model("mine.scheme"));
  await page.waitForFunction(() => window.__studio.project.active === "mine.scheme");
  await settled(page);
  for (const box of ["feed^", "(readout)"]) {
    await page.waitForSelector(key(box));
    await page.evaluate((b) => window.__studio.view.toggle(b, true), box);
  }
  await fit(page);
});
after(close_all);

test("a prompt that is refused stays open with the sentence, and what is typed next is typed there", async () => {
  await ask("tanh#1", /^Rename what it gives/, "a b");
  await says(page, ".menu [role=alert]", /must be a name/);
  assert.equal(await page.locator(".banner.bad").count(), 0);
  await page.locator(".menu input").fill("");
  await page.keyboard.type("risf");
  await page.keyboard.press("Enter");
  await wait_for_text(page, text.replaceAll(/\bh\b/g, "risf"));
  await page.waitForSelector(".menu", { state: "detached" });
  await undo();
});
test("a refusal goes with the next edit", async () => {
  const refuse = () => page.evaluate(() => window.__studio.project.refuse("the edit's name must be a name"));
  await refuse();
  await wait_text(page, ".banner.bad", "must be a name");
  await ask("tanh#1", /^Insert an op behind/, "relu");
  await wait_for_text(page, text.replace("tanh(x)", "relu(tanh(x))"));
  await page.waitForSelector(".banner.bad", { state: "detached" });
  await refuse();
  await wait_text(page, ".banner.bad", "must be a name");
  await undo();
  await page.waitForSelector(".banner.bad", { state: "detached" });
});
test("a box is repeated once or more", async () => {
  for (const typed of ["0", "-1", "1.5", ""]) {
    await ask("feed^", /^Repeat/, typed);
    await says(page, ".menu [role=alert]", /called once or more/);
    await page.keyboard.press("Escape");
    assert.equal(await text_of(page), text);
  }
  await ask("feed^", /^Repeat/, "3");
  await wait_for_text(page, text.replace("feed^layers", "feed^3"));
  await undo();
});
test("a fold says what it takes, takes no more, and selects the box that it makes", async () => {
  const select = (...sources) =>
    page.evaluate((all) => {
      const { view } = window.__studio;
      for (const [i, source] of all.entries()) view.select({ kind: "morphism", source }, i > 0);
    }, sources);
  // The dropout holds the factor, and what that is of.
  await select("feed[0].dropout#1", "feed[0].scale#1");
  await ask("feed[0].scale#1", /^Fold 2 things/);
  await says(page, ".menu", /Folds a term of line 4: 4 calls \(dropout, scale, linear, gelu\)/);
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => /^ {2}t = t \+ piece\(t\)$/m.test(window.__studio.project.text.text));
  await settled(page);
  await page.waitForFunction(() => window.__studio.view.selected[0]?.source === "feed[0].piece");
  await says(page, ".inspector", /morphisms\s*[1-9]/);
  await undo();
  // It is no box now.
  await page.waitForFunction(() => window.__studio.view.selected.length === 0);
  await says(page, ".inspector", /Nothing is selected/);
  await select("tanh#1", "gelu#1");
  await ask("tanh#1", /^Fold 2 things/);
  await says(page, ".menu", /Folds all of lines 9 to 10: 3 calls \(tanh, add, gelu\)/);
  await page.keyboard.press("Escape");
});
test("what another model does not have is not selected in it", async () => {
  await page.evaluate(() => window.__studio.view.select({ kind: "morphism", source: "tanh#1" }));
  await says(page, ".inspector", /tanh, forward/);
  await page.evaluate(() => window.__studio.open_model("char"));
  await says(page, ".inspector", /Nothing is selected/);
  assert.deepEqual(page.mistakes, []);
});
