// The stack builder, as a person uses it: drag, read a refusal, move the budget, click a point of the curve.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close_all, open_page, start_browser, start_studio } from "./browser.mjs";
import { ask, complaints, hold, pictures, question, set, settled, tab } from "./look.mjs";

let studio, browser, page;
const stack = () => page.evaluate(() => window.__studio.settings.stack);
const list = () => page.locator("ol[aria-label^='The stack']");
const plan_of = (text) => ask(page, ["plan", "--model", "char", "--batch", "4", "--stack", text, "--json"]);

before(async () => {
  studio = await start_studio();
  browser = await start_browser();
  page = await open_page(browser, studio.address);
  await page.waitForFunction(() => window.__studio?.results.functors.length > 0);
  await set(page, {});
  await tab(page, "stack");
});
after(close_all);

test("a functor is dragged from the palette into the stack, and its costs stand beside those without it", async () => {
  await page.locator(".palette li", { hasText: "checkpoint" }).first().dragTo(list());
  assert.equal(await stack(), "checkpoint");
  await settled(page);
  const [withit, without] = [await plan_of("checkpoint"), await plan_of("")];
  assert.ok(withit.peak_bytes < without.peak_bytes && withit.step_s > without.step_s);
  await page.waitForFunction(() => /−[\d.]+ [KM]iB/.test(document.querySelector(".cost")?.textContent ?? ""));
  // The row says the difference of the two plans in the words of the page.
  const said = await page.locator(".cost").first().textContent(),
    mib = (without.peak_bytes - withit.peak_bytes) / 2 ** 20;
  assert.ok(said.includes(`−${mib.toFixed(1)} MiB`), said);
  assert.match(said, /\+[\d.]+ (ms|µs)/);
  assert.match(await page.locator("section[aria-labelledby=stack-costs] .verdict").textContent(), /legal, exact/);
});
test("parameters are a form: a word is chosen, a default is not written", async () => {
  await page.getByLabel("every of checkpoint", { exact: true }).selectOption("block");
  assert.equal(await stack(), "checkpoint(block)");
  await page.getByLabel("every of checkpoint", { exact: true }).selectOption("…");
  await page.getByLabel("every of checkpoint, another value").fill("2");
  await page.getByLabel("every of checkpoint, another value").press("Enter");
  assert.equal(await stack(), "checkpoint(2)");
  await page.getByLabel("every of checkpoint", { exact: true }).selectOption("sqrt");
  assert.equal(await stack(), "checkpoint");
  await page.getByLabel("Add a functor").selectOption("recompute");
  await page.getByRole("checkbox", { name: "norm" }).check();
  assert.equal(await stack(), "checkpoint | recompute([attention, norm])");
  await page.getByRole("button", { name: "Remove recompute from the stack" }).click();
});
test("what can be added is what a step can have: the folder's own, and none that generation applies by itself", async () => {
  writeFileSync(join(studio.folder, "own.functor"), "functor own:\n  law exact\n  object activation -> kept\n");
  await page.waitForSelector("option[value='own.functor']", { state: "attached", timeout: 30_000 });
  const listed = await page.getByLabel("Add a functor").locator("option:not([value=''])").allTextContents();
  const names = await page.locator(".palette li .name").allTextContents();
  const apart = await page.evaluate(() => window.__studio.results.functors.filter((f) => f.of_forward));
  assert.ok(apart.some((f) => f.name === "cache"));
  for (const { name } of apart)
    for (const all of [listed, names])
      assert.ok(!all.some((l) => new RegExp(`(^|\\s)${name}(\\s|$)`).test(l)), `${name} is offered`);
  await page.getByLabel("Add a functor").selectOption("own.functor");
  assert.match(await stack(), /own\.functor/);
  await page.getByRole("button", { name: "Remove own.functor from the stack" }).click();
});
test("a functor of the folder has its law and its parameters, too", async () => {
  const text = await page.evaluate(() => window.__studio.results.functors.find((f) => f.name === "lora").text);
  writeFileSync(join(studio.folder, "mine.functor"), text);
  const line = page.locator(".palette li", { hasText: "mine.functor" });
  await line.locator(".law.approximating").waitFor({ timeout: 30_000 });
  await line.getByRole("button", { name: "Add mine.functor to the stack" }).click();
  await page.getByLabel("rank of mine.functor").fill("4");
  await page.getByLabel("rank of mine.functor").press("Tab");
  await page.getByRole("checkbox", { name: "feed_forward" }).check();
  assert.equal(await stack(), "checkpoint | mine.functor(4, on=feed_forward)");
  await settled(page);
  assert.match(await list().textContent(), /mine\.functor.*approximating.*8 feed_forward/s);
  await page.getByRole("button", { name: "Remove mine.functor from the stack" }).click();
});
test("chips move with the arrow keys and go with Delete", async () => {
  await page.getByLabel("Add a functor").selectOption("bf16");
  await page.getByRole("button", { name: "Move bf16, place 2 of 2" }).focus();
  await page.keyboard.press("ArrowUp");
  assert.equal(await stack(), "bf16 | checkpoint");
  assert.match(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), /^Move bf16, place 1/);
  await page.keyboard.press("ArrowDown");
  assert.equal(await stack(), "checkpoint | bf16");
  await page.keyboard.press("Delete");
  assert.equal(await stack(), "checkpoint");
});
test("a refusal is one sentence, and what it names is lit and shown", async () => {
  await set(page, { model: "gpt2", batch: 4, stack: "bf16 | tensor_parallel(5)" });
  const alert = page.locator("section.stack [role=alert]");
  assert.match(
    await alert.textContent(),
    /tensor_parallel: 'block\[0\]\.qkv\.weight' has 12 heads of keys, which 5 ranks of tensor do not divide/,
  );
  assert.ok(await page.evaluate(() => window.__studio.view.lit.has("block[0].qkv.weight")));
  assert.deepEqual(await page.locator("section[aria-labelledby=stack-costs] .bars b").first().textContent(), "—");
  // Which of the functors is to blame: without it the others are legal.
  await page.waitForFunction(() =>
    [...document.querySelectorAll("ol[aria-label^='The stack'] li")].some(
      (li) => /tensor_parallel/.test(li.textContent) && /legal without it/.test(li.textContent),
    ),
  );
  await alert.getByRole("button", { name: "block[0].qkv.weight" }).click();
  await page.waitForSelector("#tab-model[aria-selected=true]");
  await page.waitForFunction(() => document.querySelectorAll(".point.lit, .arrow.lit").length > 0);
  await tab(page, "stack");
  // A sentence that counts states of the chain lights those at which stages begin and nothing is kept.
  await set(page, { model: "gpt2", batch: 4, stack: "checkpoint(5) | pipeline(4, parts=4)" });
  assert.match(await alert.textContent(), /must not cross a stage/);
  const lit = await page.evaluate(() => {
    const v = window.__studio,
      s = v.results.forward.value.scheme;
    return [3, 7, 11].map((n) => v.view.lit.has(s.objects[s.chain.states[n]].source));
  });
  assert.deepEqual(lit, [true, true, true]);
  await set(page, { stack: "" });
  assert.equal(await alert.count(), 0);
  assert.equal(await page.evaluate(() => window.__studio.view.lit.size), 0);
});
test("a budget chooses a stack that fits, and one click takes it", async () => {
  await set(page, { stack: "" });
  const plain = await plan_of("");
  await page.getByLabel("Budget", { exact: true }).fill("420");
  const budget = await page.locator("section[aria-labelledby=stack-budget] output").textContent();
  const take = page.getByRole("button", { name: "Take this stack" });
  await take.waitFor({ timeout: 60_000 });
  assert.match(await page.locator(".answer").textContent(), /predicted, [+−±][\d.]+% against\s+the\s+present\s+stack/);
  await take.click();
  const taken = await stack(),
    planned = await plan_of(taken);
  assert.notEqual(taken, "");
  assert.ok(
    planned.peak_bytes < plain.peak_bytes && planned.peak_bytes / 2 ** 20 <= Number.parseFloat(budget) + 0.05,
    `${planned.peak_bytes} within ${budget}`,
  );
});
test("a budget that nothing fits is refused with the smallest that something does, and a search can be given up", async () => {
  await page.getByLabel("Budget in bytes, such as 2GB").fill("1 gig");
  await page.getByLabel("Budget in bytes, such as 2GB").press("Enter");
  assert.match(await page.locator(".answer").textContent(), /such as 24GB, 500MB/);
  await page.getByLabel("Budget in bytes, such as 2GB").fill("1MB");
  await page.getByLabel("Budget in bytes, such as 2GB").press("Enter");
  await page.waitForFunction(
    () => /Nothing fits below [\d.]+ MiB; 1MB was asked for/.test(document.querySelector(".answer")?.textContent ?? ""),
    null,
    { timeout: 60_000 },
  );
  const search = await hold(page, "**/api/ask", (r) => question(r).args?.includes("--fit"));
  await page.getByLabel("Budget in bytes, such as 2GB").fill("15MB");
  await page.getByLabel("Budget in bytes, such as 2GB").press("Enter");
  await search.holds(1);
  await page.locator(".answer").getByRole("button", { name: "Cancel" }).click();
  assert.equal(await page.locator(".answer").getByRole("button", { name: "Cancel" }).count(), 0);
  await search.release();
});
test("the curve is drawn, a point is read and taken, and a reload finds the curve again", async () => {
  await set(page, { sets: { layers: "2" }, stack: "" });
  await page.getByRole("button", { name: "Draw the curve" }).click();
  await page.locator("#pareto-0").waitFor({ timeout: 120_000 });
  const n = await page.locator(".point[id^=pareto]").count();
  assert.ok(n >= 3, `${n} points`);
  const places = await page
    .locator(".point[id^=pareto]")
    .evaluateAll((all) => all.map((e) => [Number.parseFloat(e.style.left), Number.parseFloat(e.style.top)]));
  for (let i = 1; i < n; i++)
    assert.ok(
      places[i][0] > places[i - 1][0] && places[i][1] >= places[i - 1][1],
      "less memory costs time: the curve falls",
    );
  await page.locator("#pareto-0").focus();
  await page.keyboard.press("ArrowRight");
  const label = await page.evaluate(() => document.activeElement.getAttribute("aria-label"));
  assert.match(label, /MiB, .*: .*Take it/);
  await page.keyboard.press("Enter");
  assert.ok(label.includes(await stack()));
  await settled(page);
  assert.equal(await page.locator(".point.present").count(), 1);
  assert.deepEqual(await pictures(page, "stack"), []);
  assert.deepEqual(await complaints(page), []);
  await page.emulateMedia({ colorScheme: "dark" });
  assert.deepEqual(await complaints(page), []);
  await page.emulateMedia({ colorScheme: "light" });
  await set(page, { sets: { layers: "2" }, stack: "" });
  await page.evaluate(() =>
    window.__studio.remember("model", { model: "char", batch: 4, sets: { layers: "2" }, stack: "" }),
  );
  await page.reload();
  await page.locator("#pareto-0").waitFor({ timeout: 30_000 });
  assert.equal(await page.locator(".point[id^=pareto]").count(), n);
  assert.deepEqual(page.mistakes, []);
});
// A pipeline has the bits of a step in as many parts, and not those of the step as it comes: whoever shows a law says against what.
test("a law is shown with what it is true of", async () => {
  await set(page, { model: "char", batch: 4, stack: "pipeline(2, parts=4)" });
  await tab(page, "stack");
  const { law, against } = await plan_of("pipeline(2, parts=4)");
  assert.equal(`${law} against ${against}`, "exact against accumulate(n=4, tied=apart)");
  const said = "exact against accumulate(n=4, tied=apart)";
  assert.ok((await page.getByLabel("What the stack costs").textContent()).includes(said));
  const verdict = await page.locator("section[aria-labelledby=stack-costs] .verdict").textContent();
  assert.ok(verdict.includes(`${said}: the same bits as a step with accumulate(n=4, tied=apart)`), verdict);
  assert.ok((await page.locator("ol[aria-label^='The stack'] li").first().textContent()).includes(said));
  await tab(page, "compare");
  await settled(page);
  assert.ok((await page.locator(".fate").textContent()).includes(said));
  await tab(page, "stack");
  await set(page, { stack: "checkpoint(block)" });
  assert.match(
    await page.locator("section[aria-labelledby=stack-costs] .verdict").textContent(),
    /legal, exact: the same bits as the step as it comes/,
  );
});
