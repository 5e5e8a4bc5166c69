// What a newcomer stumbled over: results out of sight, a batch that was only for looking, jobs that never began.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close_all, open_page, program, start_browser, start_studio } from "./browser.mjs";
import { book, complaints, hold, library_text, pictures, set, settled, tab } from "./look.mjs";

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
  await page.waitForFunction(() => {
    const line = document.querySelector(".head .line"),
      at = line?.getBoundingClientRect();
    return /generate/.test(line?.textContent ?? "") && at.top >= 0 && at.bottom <= innerHeight;
  });
});
test("the form passes only what is said in it, and its placeholders are the command's defaults", async () => {
  await set(page, { sets: small, batch: 1 });
  await open_form();
  assert.equal(await page.getByLabel("batch", { exact: true }).inputValue(), "");
  assert.ok(!/--batch/.test(await page.locator("form .line code").textContent()));
  await page.getByText("The numbers above are for batch 1, this run has 12.").waitFor();
  // Who has changed the batch above means it.
  await set(page, { sets: small, batch: 3 });
  assert.equal(await page.getByLabel("batch", { exact: true }).inputValue(), "3");
  assert.match(await page.locator("form .line code").textContent(), / --batch 3 /);
  assert.equal(await page.getByText("The numbers above are for batch").count(), 0);
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
test("a run that never began is said beside Start, and is no job of the list", async () => {
  await open_form();
  const jobs = page.locator("section[aria-labelledby=runs-jobs] li");
  const n = await jobs.count();
  await page.getByLabel("Other flags").fill("--no-such-flag");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.locator("form [role=alert]").waitFor();
  assert.equal(await jobs.count(), n);
  await page.getByLabel("Other flags").fill("");
  await page.reload();
  await jobs.first().waitFor();
  assert.equal(await jobs.count(), n);
});
test("a budget below the smallest becomes the smallest, whose stack can be taken", async () => {
  await tab(page, "stack");
  await set(page, { sets: small });
  await page.getByLabel("Budget", { exact: true }).fill("0");
  await page.waitForFunction(
    () => /Nothing fits below .* was asked for/.test(document.querySelector(".answer")?.textContent ?? ""),
    null,
    { timeout: 60_000 },
  );
  const smallest = /below ([\d.]+ \w+);/.exec(await page.locator(".answer").textContent())[1];
  await page.locator(".answer .facts").waitFor({ timeout: 60_000 });
  assert.equal(await page.locator("section[aria-labelledby=stack-budget] output").textContent(), smallest);
  assert.equal(await page.getByLabel("Budget", { exact: true }).inputValue(), "0");
  assert.deepEqual(await pictures(page, "budget"), []);
  assert.deepEqual(await complaints(page), []);
});
test("a budget is asked for as it was typed", async () => {
  await tab(page, "stack");
  const typed = page.getByLabel("Budget in bytes, such as 2GB");
  await typed.fill("1KB");
  await typed.press("Enter");
  await page.waitForFunction(
    () => /Nothing fits below .*; 1KB was asked for/s.test(document.querySelector(".answer")?.textContent ?? ""),
    null,
    { timeout: 60_000 },
  );
  await page.locator(".answer .facts").waitFor({ timeout: 60_000 });
  assert.doesNotMatch(await page.locator(".answer").textContent(), /did you mean/);
});
test("before and after begins at a size that can be read, and says what it is for", async () => {
  await tab(page, "compare");
  await set(page, { stack: "checkpoint | lora" });
  const readable = await page
    .locator(".compare svg text")
    .evaluateAll((all) =>
      all.map(
        (t) => Number.parseFloat(getComputedStyle(t).fontSize) * Math.hypot(t.getScreenCTM().a, t.getScreenCTM().b),
      ),
    );
  assert.ok(readable.length > 10 && Math.min(...readable) >= 8.9, `${Math.min(...readable)} of ${readable.length}`);
  // Enough is seen of the lower step to know that it is there.
  for (const [width, height] of [
    [1440, 900],
    [1280, 800],
  ]) {
    await page.setViewportSize({ width, height });
    await settled(page);
    const seen = await page.locator('.compare [data-item^="B|"].arrow').first().boundingBox(),
      room = await page.locator(".compare .both").boundingBox();
    assert.ok(seen.y + seen.height <= room.y + room.height, `after is seen at ${width}: ${seen.y} of ${room.height}`);
  }
  assert.deepEqual(await pictures(page, "compared"), []);
  await set(page, { stack: "" });
  assert.match(await page.locator(".fate").textContent(), /Put a functor into the stack to see what it changes/);
  assert.deepEqual(await pictures(page, "compared-nothing"), []);
});
test("the letters of the products are explained, and what is predicted or done by default is said to be", async () => {
  await tab(page, "memory");
  await set(page, { stack: "checkpoint(2)" });
  await page.locator(".letters").waitFor();
  const legend = await page.locator(".letters").textContent();
  assert.match(legend, /x a state of the chain.*ch a checkpoint.*dx gradients of activations/s);
  assert.deepEqual(await pictures(page, "letters"), []);
  assert.deepEqual(await complaints(page), []);
  const cost = page.getByLabel("What the stack costs").locator("[title^=Predicted]");
  assert.match(await cost.textContent(), /predicted step/);
  assert.match(await cost.getAttribute("title"), /cpu, \d+ threads/);
  await tab(page, "step");
  await set(page, { model: "llama3.2-1b", batch: 1 });
  assert.match(
    await page.getByRole("note").filter({ hasText: "made again" }).textContent(),
    /made again .*\(by default: recompute_cheap\)/s,
  );
  assert.deepEqual(await pictures(page, "default"), []);
  await set(page, { model: "char", stack: "checkpoint(2)" });
  assert.doesNotMatch(await page.getByRole("note").filter({ hasText: "made again" }).textContent(), /by default/);
  assert.deepEqual(page.mistakes, []);
});
test("a start that is refused leaves the form as it was typed", async () => {
  // A folder without runs, where the form goes while a run is about to begin.
  const other = await start_studio(),
    form = await open_page(browser, other.address);
  writeFileSync(join(other.folder, "book.txt"), book());
  writeFileSync(join(other.folder, "nova.scheme"), await library_text(form, "char"));
  await form.waitForFunction(() => window.__studio?.results.functors.length > 0);
  await set(form, { sets: { layers: "2" }, batch: 1 });
  await tab(form, "runs");
  await form.getByLabel("Model of the run").selectOption("nova.scheme");
  await form.getByLabel("Stack of the run").fill("bf61");
  await form.getByLabel("steps", { exact: true }).fill("ten");
  const line = await form.locator("form .line code").textContent();
  assert.match(line, /--model nova\.scheme --data book\.txt --stack bf61 --steps ten --out runs\/nova$/);
  const refused = async () => {
    await form.getByRole("button", { name: "Start", exact: true }).click();
    await form.locator("form [role=alert]").waitFor({ timeout: 30_000 });
    assert.equal(await form.locator("form .line code").textContent(), line);
  };
  await refused();
  await refused();
  assert.equal(await form.getByLabel("Model of the run").inputValue(), "nova.scheme");
  assert.equal(await form.getByLabel("Stack of the run").inputValue(), "bf61");
  // Also when the form was left for a while.
  await form.getByLabel("batch", { exact: true }).fill("7");
  await tab(form, "model");
  await tab(form, "runs");
  const again = form.getByRole("button", { name: "New run" });
  if ((await again.getAttribute("aria-expanded")) === "false") await again.click();
  const later = line.replace("--steps ten", "--steps ten --batch 7");
  assert.equal(await form.locator("form .line code").textContent(), later);
  await other.stop();
  await form.context().close();
});
test("a folder that a run may not have is named as it was typed", async () => {
  await tab(page, "runs");
  await open_form();
  await page.getByLabel("Folder of the run").fill("../evil");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.locator("form [role=alert]").waitFor();
  assert.equal(await page.locator("form [role=alert]").textContent(), "../evil: a path does not go up");
  await page.getByLabel("Folder of the run").fill("");
});
test("a run that was refused is not drawn, and nobody asks for its metrics", async () => {
  await tab(page, "runs");
  // It was running when the page was opened, and never began.
  const job = { id: "99", args: ["train", "--out", "runs/ghost"], state: "running", started: 1, folder: "runs/ghost" };
  await page.route("**/api/jobs", (route) => route.fulfill({ json: { jobs: [job] } }));
  await page.evaluate(() => window.__studio.remember("runs", { picked: ["runs/small", "runs/ghost"] }));
  await page.reload();
  const picked = page.locator(".last td:first-child");
  await picked.filter({ hasText: "runs/ghost" }).waitFor({ timeout: 30_000 });
  await page.unroute("**/api/jobs");
  await picked.filter({ hasText: "runs/ghost" }).waitFor({ state: "detached", timeout: 15_000 });
  const asked = [];
  page.on("request", (r) => void (/api\/runs\/metrics/.test(r.url()) && asked.push(decodeURIComponent(r.url()))));
  await page.waitForRequest(/api\/runs\/metrics/, { timeout: 15_000 });
  assert.ok(asked.length > 0 && asked.every((url) => /runs\/small/.test(url)), asked.join(" "));
  assert.deepEqual(await picked.allTextContents(), ["runs/small"]);
});
