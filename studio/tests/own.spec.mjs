// A folder's own things: presets of its texts, folders of Hugging Face's format, runs on several ranks and runs of the command line.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { close_all, program, start_browser, start_studio } from "./browser.mjs";
import { book, fresh, library_text, set, settled, tab, text_of } from "./look.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
let studio, browser, page;
const at = (path) => join(studio.folder, path);
before(async () => {
  studio = await start_studio();
  writeFileSync(at("book.txt"), book().slice(0, 20_000));
  cpSync(join(root, "tests/huggingface/llama"), at("theirs"), { recursive: true });
  browser = await start_browser();
  page = await fresh(browser, studio);
  const text = (await library_text(page, "char")).replace(
    "preset gpt2:",
    "preset own.small: layers=3 hidden=32 heads=4\npreset gpt2:",
  );
  writeFileSync(at("mine.scheme"), text);
});
after(close_all);

test("presets of one's own texts and folders of Hugging Face's format are opened", async () => {
  const model = page.locator("select[aria-label=Model]");
  await page.waitForFunction(() =>
    [...document.querySelectorAll("[aria-label=Model] option")].some((o) => o.value === "mine.scheme:own.small"),
  );
  await model.selectOption("mine.scheme:own.small");
  await page.waitForFunction(() => /small/.test(window.__studio.results.forward.value?.model ?? ""), null, {
    timeout: 30_000,
  });
  const { scheme } = await page.evaluate(() => window.__studio.results.forward.value);
  assert.equal(scheme.chain.states.length, 4, "three blocks");
  await model.selectOption("theirs");
  await page.waitForFunction(() => /module "block/.test(window.__studio.project.text?.text ?? ""), null, {
    timeout: 30_000,
  });
  await settled(page);
  assert.equal(await page.evaluate(() => window.__studio.results.forward.mistake?.message ?? ""), "");
  assert.equal(await page.evaluate(() => window.__studio.project.text.library), true);
  assert.ok(await page.locator(".files li", { hasText: "theirs" }).count(), "it is in the list of files");
  // A copy of its text has the sizes of its config.json.
  const params = await page.evaluate(() => window.__studio.results.forward.value.params);
  await page.getByRole("button", { name: "Change it…" }).click();
  await page.locator(".offer input").fill("copy.scheme");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => /^copy\.scheme/.test(window.__studio.settings.model));
  await settled(page);
  assert.equal(await page.evaluate(() => window.__studio.results.forward.value.params), params);
});
test("a pipeline is trained from here with as many ranks as it has, and saves what it reads alone", async () => {
  const before = await library_text(page, "char");
  writeFileSync(at("piped.scheme"), before);
  writeFileSync(at("other.scheme"), before);
  await page.evaluate(() => window.__studio.project.look_again());
  for (const name of ["other.scheme", "piped.scheme"]) {
    await page.evaluate((n) => window.__studio.open_model(`${n}:char`), name);
    await page.waitForFunction((n) => window.__studio.project.active === n, name);
    await page.locator(".cm-content").focus();
    await page.keyboard.press("Control+Home");
    await page.keyboard.type("# typed, ");
  }
  await set(page, {
    model: "piped.scheme:char",
    batch: 4,
    sets: { layers: "2", hidden: "32", context: "16" },
    stack: "pipeline(2, parts=2)",
  });
  await tab(page, "runs");
  const button = page.getByRole("button", { name: "New run" });
  if ((await button.getAttribute("aria-expanded")) === "false") await button.click();
  await page.waitForFunction(() => /--ranks 2/.test(document.querySelector("form .line code")?.textContent ?? ""));
  assert.match(await page.locator("form .go").textContent(), /^(?!.*other).*piped\.scheme is saved first/s);
  await page
    .locator("label", { hasText: /^steps/ })
    .locator("input")
    .fill("3");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.waitForFunction(
    () => [...document.querySelectorAll(".runs li")].some((li) => /3 of 3/.test(li.textContent)),
    null,
    { timeout: 60_000 },
  );
  assert.match(readFileSync(at("piped.scheme"), "utf8"), /^# typed, /);
  assert.equal(readFileSync(at("other.scheme"), "utf8"), before, "what the run does not read is not saved");
  await page.evaluate(() => window.__studio.open_model("other.scheme:char"));
  assert.match(await text_of(page), /# typed, /);
  // The curve of another model does not wait for it.
  await set(page, { model: "char", batch: 2 });
  await tab(page, "stack");
  await page.locator("button:enabled", { hasText: "Draw the curve" }).waitFor();
});
test("a run of the command line that goes on cannot be resumed meanwhile", async () => {
  const flags = "train --model char --set layers=1 hidden=32 --data book.txt --batch 2 --steps 100000 --save-every 5";
  const child = spawn(program, [...flags.replace(" hidden", " --set hidden").split(" "), "--out", "runs/elsewhere"], {
    cwd: studio.folder,
    stdio: "ignore",
  });
  try {
    await tab(page, "runs");
    const row = page.locator(".runs li", { has: page.getByLabel("More about runs/elsewhere") });
    await row.getByText("runs elsewhere").waitFor({ timeout: 30_000 });
    assert.equal(await row.getByRole("button", { name: "Resume" }).count(), 0);
    const ended = once(child, "exit");
    child.kill("SIGINT");
    await ended;
    await row.getByRole("button", { name: "Resume" }).waitFor({ timeout: 30_000 });
  } finally {
    child.kill("SIGKILL");
  }
  assert.deepEqual(page.mistakes, []);
});
// Things that a view pointed at are not lit in the next one.
test("a rule that was pointed at is dark in another view", async () => {
  await set(page, { model: "char", batch: 4, stack: "" });
  await page.locator(".palette .name", { hasText: /lora$/ }).first().click();
  await page.waitForSelector(".rule");
  await page.waitForFunction(() => /matches \d+ here/.test(document.querySelector(".count")?.textContent ?? ""));
  await settled(page);
  await page.locator(".rule", { hasText: "linear(x, W)" }).first().hover();
  await page.waitForFunction(() => window.__studio.view.lit.size > 0);
  await page.evaluate(() => document.getElementById("tab-step").click());
  await settled(page);
  assert.equal(await page.evaluate(() => window.__studio.view.lit.size), 0);
});
