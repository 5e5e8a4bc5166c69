// Nothing that is typed, drawn or opened is lost or damaged: slow answers, other writers, hidden panels, line ends, a browser that is
// left.
import assert from "node:assert/strict";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { start_browser, start_studio } from "./browser.mjs";
import { fresh, key, own_model, settled, text_of, wait_for_text, wait_text } from "./look.mjs";

let studio,
  browser,
  page,
  was,
  number = 0,
  name;
const on_disk = (path = name) => readFileSync(join(studio.folder, path), "utf8");
const write = (text, path = name) => writeFileSync(join(studio.folder, path), text);
const question = (route) => {
  try {
    return route.request().postDataJSON();
  } catch {
    return null;
  }
};
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const type = async (text) => {
  await page.locator(".cm-content").focus();
  await page.keyboard.press("Control+Home");
  await page.keyboard.type(text);
};
const menu = async (k, entry) => {
  await page.locator(key(k)).first().click({ button: "right" });
  await page.getByRole("menuitem", { name: entry }).first().click();
};
const saved = () => wait_text(page, ".banner", `Saved ${name}`);
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
after(async () => {
  await browser?.close();
  await studio?.stop();
});
beforeEach(async () => {
  name = `text_${++number}.scheme`;
  was = await own_model(page, studio, name);
  await page.evaluate(() => {
    window.__studio.view.toggle("block^", true);
    window.__studio.view.select(null);
  });
  await page.waitForSelector(key("block[0].gelu#1"));
  await page.click("button[aria-label^='Fit']");
  await wait(200);
});

test("one types on while something is selected in the drawing", async () => {
  await page.click(key("block[0].gelu#1"));
  await type("# a");
  await settled(page);
  await wait(250);
  await page.keyboard.type("b\n");
  await is(`# ab\n${was}`);
});
test("letters that are typed while an edit is asked for stay", async () => {
  await page.route("**/api/ask", async (route) => {
    const asked = question(route);
    if (asked?.args[0] === "edit") await wait(500);
    await route.continue();
  });
  await menu("block[0].gelu#1", /Insert an op behind/);
  await page.keyboard.type("tanh");
  await page.keyboard.press("Enter");
  await wait(100);
  await type("# x\n");
  await is(inserted(`# x\n${was}`));
  await page.unroute("**/api/ask");
});
test("a menu means the call that it was opened for, whatever became of the text", async () => {
  await page.route("**/api/ask", async (route) => {
    if (question(route)?.args[0] === "show") await wait(400);
    await route.continue();
  });
  await menu("block[0].gelu#1", /Insert an op behind/);
  await page.keyboard.type("tanh");
  const other = was.replace("  qkv = linear(", "  x = dropout(dropout(x, 0.1), 0.2)\n  qkv = linear(");
  assert.notEqual(other, was);
  write(other);
  await is(other);
  await page.keyboard.press("Enter");
  await is(inserted(other));
  await page.unroute("**/api/ask");
});
test("while a newer drawing is arranged, a menu is of what is seen", async () => {
  await page.evaluate(() => {
    const { prototype } = Worker;
    window.__post ??= prototype.postMessage;
    prototype.postMessage = function (...said) {
      setTimeout(() => window.__post.apply(this, said), 1500);
    };
  });
  const objects = () => page.evaluate(() => window.__studio.results.forward.value.scheme.objects.length),
    had = await objects(),
    fewer = was.replace("h = gelu(linear(layer_norm(x, eps=eps), ffn, name=up))", "h = linear(x, ffn, name=up)");
  assert.notEqual(fewer, was);
  write(fewer);
  await page.waitForFunction((n) => window.__studio.results.forward.value.scheme.objects.length < n, had);
  for (const name of ["logits", "loss"]) {
    const point = page.locator(`.point:has(.name:text-is('${name}')) [data-key]`).first(),
      source = (await point.getAttribute("data-key")).replace("o:", "");
    await point.click({ button: "right" });
    assert.equal(await page.locator("[role=menu]").getAttribute("aria-label"), source);
    await page.keyboard.press("Escape");
  }
  await page.locator(key("block[0].gelu#1")).first().click({ button: "right" });
  await page.getByRole("menuitem", { name: /Insert an op behind/ }).click();
  await page.evaluate(() => {
    Worker.prototype.postMessage = window.__post;
  });
  await page.keyboard.type("tanh");
  await page.keyboard.press("Enter");
  await wait_text(page, ".banner", "This is no longer in the drawing.");
  await is(fewer);
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
  await page.route("**/api/file", async (route) => {
    await wait(300);
    await route.continue();
  });
  await type("# held\n");
  for (let i = 0; i < 3; i++) await page.evaluate(() => void window.__studio.project.save());
  await saved();
  await wait(700);
  assert.equal(await page.locator(".banner.bad").count(), 0);
  assert.equal(on_disk(), `# held\n${was}`);
  await page.unroute("**/api/file");
  rmSync(join(studio.folder, name));
  await wait_text(page, ".banner", "was removed");
  assert.equal(await text_of(page), `# held\n${was}`);
  await page.keyboard.press("Control+s");
  await saved();
  assert.equal(on_disk(), `# held\n${was}`);
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
