// Nothing that is typed, drawn or opened is lost or damaged: slow answers, other writers, hidden panels, line ends, a browser that is
// left.
import assert from "node:assert/strict";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { close_all, start_browser, start_studio } from "./browser.mjs";
import {
  fit,
  frames,
  fresh,
  hold,
  key,
  own_model,
  question,
  saved as is_saved,
  settled,
  text_of,
  wait_for_text,
  wait_text,
} from "./look.mjs";

let studio,
  browser,
  page,
  was,
  number = 0,
  name;
const on_disk = (path = name) => readFileSync(join(studio.folder, path), "utf8");
const write = (text, path = name) => writeFileSync(join(studio.folder, path), text);
// Questions of a command wait until they are let go.
const hold_asked = (command) => hold(page, "**/api/ask", (r) => question(r).args?.[0] === command);
const type = async (text) => {
  await frames(page, 2); // a menu that was closed gives the keyboard back to the drawing in the next one
  await page.locator(".cm-content").focus();
  await page.keyboard.press("Control+Home");
  await page.keyboard.type(text);
};
const menu = async (k, entry) => {
  await page.locator(key(k)).first().click({ button: "right" });
  await page.getByRole("menuitem", { name: entry }).first().click();
};
const saved = () => is_saved(page, name);
const is = (text) => wait_for_text(page, text);
const inserted = (text) =>
  text.replace(
    "h = gelu(linear(layer_norm(x, eps=eps), ffn, name=up))",
    "h = tanh(gelu(linear(layer_norm(x, eps=eps), ffn, name=up)))",
  );

before(async () => {
  studio = await start_studio();
  browser = await start_browser();
  page = await fresh(browser, studio);
  page.on("dialog", (d) => void d.accept());
});
after(close_all);
beforeEach(async () => {
  name = `text_${++number}.scheme`;
  was = await own_model(page, studio, name);
  await page.evaluate(() => {
    window.__studio.view.toggle("block^", true);
    window.__studio.view.select(null);
  });
  await page.waitForSelector(key("block[0].gelu#1"));
  await fit(page);
});

test("one types on while something is selected in the drawing", async () => {
  await page.click(key("block[0].gelu#1"));
  await type("# a");
  await settled(page);
  await page.keyboard.type("b\n");
  await is(`# ab\n${was}`);
});
test("letters that are typed while an edit is asked for stay", async () => {
  const edits = await hold_asked("edit");
  await menu("block[0].gelu#1", /Insert an op behind/);
  await page.keyboard.type("tanh");
  await page.keyboard.press("Enter");
  await edits.holds(1);
  await type("# x\n");
  await edits.release();
  await is(inserted(`# x\n${was}`));
});
test("a menu means the call that it was opened for, whatever became of the text", async () => {
  const shows = await hold_asked("show");
  await menu("block[0].gelu#1", /Insert an op behind/);
  await page.keyboard.type("tanh");
  const other = was.replace("  qkv = linear(", "  x = dropout(dropout(x, 0.1), 0.2)\n  qkv = linear(");
  assert.notEqual(other, was);
  write(other);
  await is(other);
  await shows.holds(1);
  await page.keyboard.press("Enter");
  await shows.release();
  await is(inserted(other));
});
test("while a newer drawing is arranged, a menu is of what is seen", async () => {
  // What the worker is asked it hears when the test says so.
  await page.evaluate(() => {
    const { prototype } = Worker,
      post = prototype.postMessage,
      asked = [];
    prototype.postMessage = function (...said) {
      asked.push(() => post.apply(this, said));
    };
    window.__arrange = () => {
      prototype.postMessage = post;
      for (const say of asked.splice(0)) say();
      return !window.__studio.is_drawn();
    };
  });
  const objects = () => page.evaluate(() => window.__studio.results.forward.value.scheme.objects.length),
    had = await objects(),
    fewer = was.replace("h = gelu(linear(layer_norm(x, eps=eps), ffn, name=up))", "h = linear(x, ffn, name=up)");
  assert.notEqual(fewer, was);
  write(fewer);
  await page.waitForFunction((n) => window.__studio.results.forward.value.scheme.objects.length < n, had);
  try {
    for (const name of ["logits", "loss"]) {
      const point = page.locator(`.point:has(.name:text-is('${name}')) [data-key]`).first(),
        source = (await point.getAttribute("data-key")).replace("o:", "");
      await point.click({ button: "right" });
      assert.equal(await page.locator("[role=menu]").getAttribute("aria-label"), source);
      await page.keyboard.press("Escape");
    }
    await page.locator(key("block[0].gelu#1")).first().click({ button: "right" });
    await page.getByRole("menuitem", { name: /Insert an op behind/ }).click();
    await page.keyboard.type("tanh");
    await page.keyboard.press("Enter");
    await wait_text(page, "[role=alert]", "This is no longer in the drawing.");
    await page.keyboard.press("Escape");
  } finally {
    assert.ok(await page.evaluate(() => window.__arrange()), "the newer drawing waited until now");
  }
  await is(fewer);
  await settled(page);
  assert.equal(await page.locator(key("block[0].gelu#1")).count(), 0);
  assert.deepEqual(page.mistakes, []);
});
test("with the text hidden the drawing changes it, takes it back, and asks for a name where it must", async () => {
  await page.click("button[aria-label='Text and selection']");
  await menu("block[0].gelu#1", /Insert an op behind/);
  await page.keyboard.type("tanh");
  await page.keyboard.press("Enter");
  await is(inserted(was));
  await page.waitForSelector(key("block[0].tanh#1"));
  await page.locator(key("block[0].tanh#1")).focus();
  await page.keyboard.press("Control+z");
  await is(was);
  await page.keyboard.press("Control+Shift+z");
  await is(inserted(was));
  await page.evaluate(() => window.__studio.open_model("char"));
  await settled(page);
  await page.locator(key("block[0].gelu#1")).first().focus();
  await page.keyboard.press("i");
  await page.keyboard.type("tanh");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".offer input");
  await page.getByLabel("Name of the copy").fill(`copy_${number}.scheme`);
  await page.keyboard.press("Enter");
  await is(inserted(was));
  assert.equal(on_disk(`copy_${number}.scheme`), was);
});
test("undo is the drawing's as well as the text's", async () => {
  await page.locator(key("block[0].gelu#1")).first().focus();
  await page.keyboard.press("i");
  await page.keyboard.type("tanh");
  await page.keyboard.press("Enter");
  await is(inserted(was));
  await page.waitForSelector(key("block[0].tanh#1"));
  await page.locator(key("block[0].tanh#1")).focus();
  await page.keyboard.press("Control+z");
  await is(was);
});
test("lines that end with a return keep it, in drawn edits and in what is saved", async () => {
  name = `crlf_${number}.scheme`;
  was = await own_model(page, studio, name, (text) => text.replaceAll("\n", "\r\n"));
  await page.waitForSelector(key("block[0].gelu#1"));
  await menu("block[0].gelu#1", /Insert an op behind/);
  await page.keyboard.type("tanh");
  await page.keyboard.press("Enter");
  await page.waitForSelector(key("block[0].tanh#1"));
  await type("# typed\n");
  await settled(page);
  assert.equal(await page.locator(".mistake").count(), 0);
  await page.keyboard.press("Control+s");
  await saved();
  assert.equal(on_disk(), `# typed\r\n${inserted(was)}`);
});
test("a save that comes upon another's change offers both ways out", async () => {
  await type("# mine\n");
  write("# by somebody else\n" + was);
  await page.keyboard.press("Control+s");
  await wait_text(page, ".banner", "changed by somebody else");
  await page.getByRole("button", { name: "Save under another name…" }).click();
  await page.getByLabel("Name of the copy").fill(`mine_${number}.scheme`);
  await page.keyboard.press("Enter");
  await page.waitForFunction((n) => window.__studio.project.active === n, `mine_${number}.scheme`);
  assert.equal(on_disk(`mine_${number}.scheme`), `# mine\n${was}`);
  assert.equal(on_disk(), `# by somebody else\n${was}`);
  await page.evaluate((n) => window.__studio.open_model(`${n}:char`), name);
  await is(`# by somebody else\n${was}`);
  await type("# again\n");
  write(was);
  await page.keyboard.press("Control+s");
  await wait_text(page, ".banner", "changed by somebody else");
  await page.getByRole("button", { name: "Reload it" }).click();
  await is(was);
  assert.ok(!(await page.evaluate((n) => window.__studio.project.dirty.some((t) => t.path === n), name)));
});
test("a key that is held saves once, and a file that was removed is saved as a new one", async () => {
  let puts = 0;
  page.on("request", (r) => (puts += Number(r.method() === "PUT")));
  const writes = await hold(page, "**/api/file", (r) => r.method() === "PUT");
  await type("# held\n");
  await page.evaluate(() => {
    window.__saves = [1, 2, 3].map(() => window.__studio.project.save());
  });
  await writes.holds(1);
  await writes.release();
  assert.deepEqual(await page.evaluate(() => Promise.all(window.__saves)), [true, true, true]);
  await saved();
  assert.equal(puts, 1);
  assert.equal(await page.locator(".banner.bad").count(), 0);
  assert.equal(on_disk(), `# held\n${was}`);
  // A file that comes and goes between two looks of the server was never there: this one it has seen.
  write(`# seen\n${was}`);
  await is(`# seen\n${was}`);
  rmSync(join(studio.folder, name));
  await wait_text(page, ".banner", "was removed");
  assert.equal(await text_of(page), `# seen\n${was}`);
  await page.keyboard.press("Control+s");
  await saved();
  assert.equal(on_disk(), `# seen\n${was}`);
});
test("the offer of a copy is of the text for which it was made", async () => {
  await page.evaluate(() => window.__studio.open_model("gpt2"));
  await page.waitForFunction(() => window.__studio.project.active === "gpt2");
  await type("#");
  await page.waitForSelector(".offer");
  await page.locator(".palette .name", { hasText: /lora$/ }).first().click();
  await page.waitForFunction(() => window.__studio.project.active === "lora");
  assert.equal(await page.locator(".offer").count(), 0);
  await type("#");
  await page.waitForSelector(".offer");
  assert.equal(await page.getByLabel("Name of the copy").inputValue(), "my_lora.functor");
});
test("a mistake behind letters of several bytes is underlined where it is", async () => {
  const n = "letters.functor";
  write('functor letters:\n  law exact\n  require L > 0, else "größe ≥ 1" keptt\n', n);
  await page.locator(".files button", { hasText: n }).first().waitFor({ timeout: 30_000 });
  await page.evaluate((f) => window.__studio.project.open_file(f), n);
  await page.waitForSelector(".cm-lintRange-error", { timeout: 30_000 });
  assert.equal(await page.locator(".cm-lintRange-error").first().textContent(), "keptt");
});
test("a functor and an optimizer are underlined by themselves", async () => {
  const underlined = async (n, text) => {
    write(text, n);
    await page.locator(".files button", { hasText: n }).first().waitFor({ timeout: 30_000 });
    await page.evaluate((f) => window.__studio.project.open_file(f), n);
    await page.waitForSelector(".cm-lintRange-error", { timeout: 30_000 });
    assert.match(await page.locator(".mistake").textContent(), /^line \d+: wanted/);
  };
  await underlined("bad.functor", "functor bad:\n  law exact\n  object activation -> keptt\n");
  await own_model(page, studio, name);
  await underlined("bad.optimizer", "optimizer mine(beta = 0.9):\n  state m like p\n  p = p - rate*(g +\n");
});
test("a file is renamed and deleted from the list of files", async () => {
  await page.getByRole("button", { name: `Rename or delete ${name}`, exact: true }).click();
  await page.getByLabel(`Another name of ${name}`).fill(`renamed_${number}.scheme`);
  await page.keyboard.press("Enter");
  await page.waitForFunction(
    (n) => window.__studio.settings.model === `${n}:char` && window.__studio.project.active === n,
    `renamed_${number}.scheme`,
  );
  assert.ok(!existsSync(join(studio.folder, name)) && on_disk(`renamed_${number}.scheme`) === was);
  await page.getByRole("button", { name: `Rename or delete renamed_${number}.scheme`, exact: true }).click();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByRole("button", { name: "Delete it for good" }).click();
  await page.waitForFunction(() => window.__studio.settings.model === "gpt2");
  assert.ok(!existsSync(join(studio.folder, `renamed_${number}.scheme`)));
  await settled(page);
  assert.deepEqual(page.mistakes, []);
});
