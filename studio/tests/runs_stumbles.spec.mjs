// What a newcomer stumbled over: results out of sight, a batch that was only for looking, jobs that never began.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close_all, open_page, program, start_browser, start_studio } from "./browser.mjs";
import { book, complaints, hold, pictures, question, set, settled, tab } from "./look.mjs";

let studio, browser, page;
const small = { layers: "2", hidden: "64" };
const result = (of) => page.locator(`[aria-label="Result of ${of}"]`);
const in_window = (locator) =>
  locator.evaluate((e) => {
    const { top, bottom } = e.getBoundingClientRect();
    return top >= 0 && bottom <= innerHeight;
  });
const open_form = async () => {
  const button = page.getByRole("button", { name: "New run" });
  if ((await button.getAttribute("aria-expanded")) === "false") await button.click();
};

before(async () => {
  studio = await start_studio();
  writeFileSync(join(studio.folder, "book.txt"), book());
  const flags =
    "--model char --set layers=2 hidden=64 --data book.txt --steps 4 --batch 2 --threads 1 --out runs/small";
  execFileSync(program, ["train", ...flags.split(" ")], { cwd: studio.folder, stdio: "ignore" });
  browser = await start_browser();
  page = await open_page(browser, studio.address);
  await page.waitForFunction(() => window.__studio?.results.functors.length > 0);
  await set(page, { sets: small });
  await tab(page, "runs");
});
after(close_all);

test("what a run is asked for is said below its button, at once and when it is there", async () => {
  await page.getByRole("button", { name: "More about runs/small" }).click();
  const start = await hold(page, "**/api/jobs", (r) => r.method() === "POST");
  await page.getByRole("button", { name: "Generate" }).click();
  await start.holds(1);
  assert.match(await result("generate").textContent(), /A text is written …/);
  assert.equal(await result("generate").getAttribute("aria-busy"), "true");
  await start.release();
  await result("generate").locator("pre").waitFor();
  await page.waitForSelector('[aria-label="Result of generate"][aria-busy=false]');
  const text = await result("generate").locator("pre").textContent();
  assert.ok(text.length > 100, text);
  assert.ok(await in_window(result("generate")), "in sight at 1280 x 800");
  // The console says the same, above the plots while its job does not train.
  const order = await page.locator(".main h2, .main [aria-label=Plots]").evaluateAll((all) => all.map((e) => e.id));
  assert.deepEqual(order, ["runs-console", ""]);
  assert.ok((await page.locator("[role=log]").textContent()).includes(text.split("\n")[0]));
  assert.deepEqual(await pictures(page, "generated"), []);
  assert.deepEqual(await complaints(page), []);
});
test("the verdict on the present stack stands below Verify, and a job that is chosen is in sight", async () => {
  await set(page, { sets: small, stack: "checkpoint(block)" });
  const section = page.locator("section[aria-labelledby=runs-model]");
  await section.getByRole("button", { name: "Verify" }).click();
  await page.waitForSelector('[aria-label="Result of verify"][aria-busy=false]');
  assert.match(await result("verify").textContent(), /the stack 'checkpoint\(block\)' is exact/);
  assert.ok(await in_window(result("verify")));
  await page
    .locator("section[aria-labelledby=runs-jobs]")
    .getByRole("button", { name: /generate/ })
    .click();
  await page.waitForFunction(() => /generate/.test(document.querySelector(".head .line")?.textContent ?? ""));
  assert.ok(await in_window(page.locator(".head .state")));
});
test("the form passes only what is said in it, and its placeholders are the command's defaults", async () => {
  await set(page, { sets: small, batch: 3 });
  await open_form();
  assert.equal(await page.getByLabel("batch", { exact: true }).inputValue(), "");
  assert.ok(!/--batch/.test(await page.locator("form .line code").textContent()));
  const help = execFileSync(program, ["train", "--help"], { encoding: "utf8" });
  const default_of = (flag) => new RegExp(`${flag} [A-Z]+=(\\S+)`).exec(help)[1];
  for (const [label, flag] of [
    ["steps", "--steps"],
    ["batch", "--batch"],
    ["learning rate", "--lr"],
  ])
    assert.equal(await page.getByLabel(label, { exact: true }).getAttribute("placeholder"), default_of(flag));
  await page.getByLabel("batch", { exact: true }).fill("5");
  assert.match(await page.locator("form .line code").textContent(), / --batch 5 /);
  await page.getByLabel("batch", { exact: true }).fill("");
});
