// What is shown is of the present: of this tab's questions, of the files as they are now, of the model that was opened last.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close_all, start_browser, start_studio } from "./browser.mjs";
import { fit, fresh, frames, hold, key, own_model, question, set, settled, tab, text_of, wait_text } from "./look.mjs";

let studio, browser, page;
const plan = (p) =>
  p.evaluate(() => ({
    batch: window.__studio.results.plan.value.batch,
    peak: window.__studio.results.plan.value.peak_bytes,
  }));
// A job of it takes a second.
const small = (text) =>
  text.replace(/preset char: layers=4 hidden=128 heads=4/, "preset char: layers=1 hidden=16 heads=1");

before(async () => {
  studio = await start_studio();
  browser = await start_browser();
  page = await fresh(browser, studio);
});
after(async () => {
  await close_all();
  assert.deepEqual(page?.mistakes, []);
});

test("two tabs ask at once, and each has its own answer", async () => {
  const other = await page.context().newPage();
  await other.goto(studio.address);
  await other.waitForFunction(() => window.__studio?.results.functors.length > 0);
  for (const p of [page, other]) await set(p, { model: "gpt2", batch: 1 });
  for (const n of [3, 5, 7]) {
    await Promise.all(
      [
        [page, n],
        [other, n + 1],
      ].map(([p, batch]) =>
        p.evaluate((b) => {
          window.__studio.settings.batch = b;
        }, batch),
      ),
    );
    for (const p of [page, other]) await settled(p);
    assert.deepEqual([(await plan(page)).batch, (await plan(other)).batch], [n, n + 1]);
  }
  await other.close();
});
test("a question that is asked again after another has its answer", async () => {
  await set(page, { model: "gpt2", batch: 1 });
  // The answers come when all is asked, in one order and in the other.
  for (const turned of [false, true]) {
    const asked = await hold(page, "**/api/ask", (r) => question(r).args?.[0] === "plan");
    for (const [i, batch] of [2, 3, 2].entries()) {
      await page.evaluate((b) => {
        window.__studio.settings.batch = b;
      }, batch);
      await asked.holds(i + 1);
    }
    if (turned) asked.held.reverse();
    await asked.release();
    await settled(page);
    assert.equal((await plan(page)).batch, 2);
    await set(page, { model: "gpt2", batch: 1 });
  }
});
test("what is written into a file from outside is drawn, planned and compared", async () => {
  const was = await own_model(page, studio, "outside.scheme");
  await page.evaluate(() => {
    window.__studio.settings.batch = 4; // of one sample, planned for one core, checkpoints save nothing
    window.__studio.settings.set_stack("checkpoint(block)");
  });
  await tab(page, "stack");
  await settled(page);
  await page
    .waitForFunction(
      () => /iB/.test(document.querySelector("ol[aria-label^='The stack'] .cost")?.textContent ?? ""),
      null,
      { timeout: 30_000 },
    )
    .catch(async () => assert.fail(await page.locator(".sheet").innerText()));
  const [before, peak] = [
    await page.locator("ol[aria-label^='The stack'] .cost").first().textContent(),
    (await plan(page)).peak,
  ];
  const other = was.replace("preset char: layers=4 hidden=128", "preset char: layers=4 hidden=256");
  assert.notEqual(other, was);
  writeFileSync(join(studio.folder, "outside.scheme"), other);
  await page.waitForFunction((p) => window.__studio.results.plan.value.peak_bytes > p, peak, { timeout: 30_000 });
  await page.waitForFunction(
    (was) => {
      const now = document.querySelector("ol[aria-label^='The stack'] .cost")?.textContent ?? "";
      return /iB/.test(now) && now !== was;
    },
    before,
    { timeout: 60_000 },
  );
  assert.equal(await text_of(page), other);
  await tab(page, "model");
});
test("a curve belongs to the files of which it was made", async () => {
  const was = await own_model(page, studio, "curve.scheme", (text) =>
    text.replace("preset char: layers=4 hidden=128", "preset char: layers=2 hidden=64"),
  );
  await page.evaluate(() => window.__studio.settings.set_stack(""));
  await tab(page, "stack");
  await page.getByRole("button", { name: "Draw the curve" }).click();
  await page.locator("#pareto-0").waitFor({ timeout: 60_000 });
  writeFileSync(join(studio.folder, "curve.scheme"), was.replace("hidden=64", "hidden=32"));
  await page.locator("#pareto-0").waitFor({ state: "detached", timeout: 30_000 });
  await page.getByRole("button", { name: "Draw the curve" }).waitFor();
  await tab(page, "model");
});
test("of models that are opened one after the other the last is shown", async () => {
  const slow = await hold(page, "**/api/ask", (r) => {
    const { args = [] } = question(r);
    return args.includes("--text") && args.includes("char");
  });
  await page.evaluate(() => {
    window.__first = window.__studio.open_model("char");
  });
  await slow.holds(1);
  await page.evaluate(() => window.__studio.open_model("ref"));
  assert.equal(await page.evaluate(() => window.__studio.project.active), "ref");
  // The text that was asked for first is answered last.
  await slow.release();
  await page.evaluate(() => window.__first);
  assert.equal(await page.evaluate(() => window.__studio.project.active), "ref");
  assert.equal(await page.evaluate(() => window.__studio.settings.model), "ref");
});
test("without a stack a plan that fails is a refusal, and no number of another plan stands beside it", async () => {
  await set(page, { model: "char" });
  await page.evaluate(() => {
    window.__studio.settings.optimizer = "nothing.optimizer";
  });
  await settled(page);
  const facts = await page.locator(".facts[role=status]").textContent();
  assert.match(facts, /refused/);
  assert.match(facts, /peak —.*step —/s);
  assert.doesNotMatch(facts, /\d|exact/);
  await page.evaluate(() => {
    window.__studio.settings.optimizer = "adamw";
  });
  await settled(page);
  assert.match(await page.locator(".facts[role=status]").textContent(), /legal.*peak/);
});
test("what is only said of a parameter is no change of it", async () => {
  await set(page, { model: "char", stack: "checkpoint(block)" });
  await tab(page, "compare");
  await page.waitForSelector(".fate table tr", { timeout: 30_000 });
  await page.evaluate(() => window.__studio.view.select({ kind: "object", source: "block[0].qkv.weight" }));
  await wait_text(page, ".fate h3", "block[0].qkv.weight");
  const rows = await page
    .locator(".fate tr.changed")
    .filter({ hasText: /weight(?!:)/ })
    .allTextContents();
  assert.deepEqual(
    rows.filter((r) => /recomputed|kept/.test(r)),
    [],
  );
});
test("a reload on a functor shows that functor, and one on a step draws it without fusions", async () => {
  await page.locator(".palette .name", { hasText: /lora$/ }).first().click();
  await page.waitForSelector(".rule");
  await page.reload();
  await page.waitForSelector(".rule", { timeout: 30_000 });
  assert.equal(await page.locator("#tab-functor[aria-selected=true]").count(), 1);
  await tab(page, "step");
  await settled(page);
  const morphisms = () => page.evaluate(() => window.__studio.results.step.value?.scheme.morphisms.length);
  const was = await morphisms();
  await page.reload();
  await page.waitForFunction(
    () => window.__studio?.results.functors.length > 0 && window.__studio.results.step.value,
    null,
    { timeout: 30_000 },
  );
  await settled(page);
  assert.equal(await morphisms(), was);
});
test("a model that is gone is said, and gpt2 is shown", async () => {
  const gone = { model: "gone.scheme", batch: 2, sets: {}, stack: "" };
  await page.evaluate((m) => window.__studio.remember("model", m), gone);
  await page.reload();
  await page.waitForFunction(() => window.__studio?.results.forward.value?.model === "gpt2", null, { timeout: 30_000 });
  await page.waitForFunction(() => window.__studio.project.active === "gpt2");
  await wait_text(page, ".banner", "gone.scheme cannot be read");
});
test("one stream a tab, and none while it is hidden", async () => {
  const streams = [];
  const p = await page.context().newPage();
  p.on("request", (r) => {
    if (r.resourceType() === "eventsource" || /events/.test(r.url())) streams.push(r.url().replace(studio.address, ""));
  });
  await p.goto(studio.address);
  await p.waitForFunction(() => window.__studio?.results.functors.length > 0);
  await p.bringToFront();
  const was = await own_model(p, studio, "hidden.scheme", small);
  await tab(p, "runs");
  await p.getByRole("button", { name: "Verify", exact: true }).first().click();
  await p.waitForFunction(() => document.querySelector(".head .state")?.textContent === "done", null, {
    timeout: 60_000,
  });
  assert.deepEqual([...new Set(streams.filter((s) => !/wait=0/.test(s)))], ["api/events?jobs=1"]);
  const hide = (hidden) =>
    p.evaluate((h) => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => h });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  await hide(true);
  await page.evaluate(() => window.__studio.project.open_file("hidden.scheme"));
  writeFileSync(join(studio.folder, "hidden.scheme"), `# meanwhile\n${was}`);
  // Another tab that is seen is told, and this one is not.
  await page.waitForFunction((t) => window.__studio.project.find("hidden.scheme")?.text === t, `# meanwhile\n${was}`, {
    timeout: 30_000,
  });
  assert.equal(await text_of(p), was);
  await hide(false);
  await p.waitForFunction(() => window.__studio.project.text.text.startsWith("# meanwhile"), null, { timeout: 30_000 });
  await p.close();
});
test("what is not saved is saved before a job reads it", async () => {
  const was = await own_model(page, studio, "job.scheme", small);
  await page.locator(".cm-content").focus();
  await page.keyboard.press("Control+Home");
  await page.keyboard.type("# not saved\n");
  await tab(page, "runs");
  await page.locator("section[aria-labelledby=runs-model]").getByRole("button", { name: "Verify" }).click();
  await page.waitForFunction(() =>
    /verify.*job\.scheme/.test(document.querySelector(".head .line")?.textContent ?? ""),
  );
  assert.equal(readFileSync(join(studio.folder, "job.scheme"), "utf8"), `# not saved\n${was}`);
  // It ends while another view is shown, and says all that it said.
  await tab(page, "model");
  await page.waitForFunction(
    () =>
      fetch("api/jobs")
        .then((r) => r.json())
        .then((a) => a.jobs.every((j) => j.state !== "running")),
    null,
    { timeout: 60_000 },
  );
  await tab(page, "runs");
  await wait_text(page, "[role=log]", "its gradients are within");
});
test("memory is drawn of a run that measures it", async () => {
  mkdirSync(join(studio.folder, "runs/measured"), { recursive: true });
  writeFileSync(
    join(studio.folder, "runs/measured/run.json"),
    JSON.stringify({ options: { model: "char", batch: 4, steps: 20 } }),
  );
  const lines = [1, 2, 3].map((step) => JSON.stringify({ step, loss: 3 - step / 10, memory_bytes: step * 2 ** 20 }));
  writeFileSync(join(studio.folder, "runs/measured/metrics.jsonl"), `${lines.join("\n")}\n`);
  await page.locator(".runs label", { hasText: "runs/measured" }).getByRole("checkbox").check({ timeout: 30_000 });
  await page.locator("[role=img][aria-label^='Memory over steps: runs/measured 3.0 MiB']").waitFor({ timeout: 30_000 });
});
test("a call reads another value in place of the one that is meant", async () => {
  const was = await own_model(page, studio, "two.scheme");
  await tab(page, "model");
  await page.evaluate(() => window.__studio.view.toggle("block^", true));
  await page.waitForSelector(key("block[0].add#1"));
  await fit(page);
  await page.locator(key("block[0].add#1")).first().click({ button: "right" });
  const entries = page.getByRole("menuitem", { name: /Read another value instead of/ });
  assert.equal(await entries.count(), 2);
  await entries.nth(1).click();
  await page.keyboard.type("qkv");
  await page.keyboard.press("Enter");
  await page.waitForFunction((t) => window.__studio.project.text.text !== t, was);
  assert.match(await text_of(page), /x = x \+ qkv\b/);
  await page.evaluate(() => window.__studio.project.reload("two.scheme"));
});
test("by keyboard several things are chosen, and a dialog keeps the keyboard", async () => {
  await settled(page);
  await page.evaluate(() => window.__studio.view.select(null));
  await page.locator(key("block[0].gelu#1")).first().focus();
  await page.keyboard.press("Control+Space");
  await page.keyboard.press("Control+ArrowRight");
  await page.keyboard.press("Control+ArrowRight");
  assert.equal(await page.evaluate(() => window.__studio.view.selected.length), 1);
  await page.keyboard.press("Control+Space");
  assert.equal(await page.evaluate(() => window.__studio.view.selected.length), 2);
  await frames(page, 2); // the keyboard goes to what was reached in the next one
  await page.keyboard.press("Control+k");
  await page.waitForSelector("[role=dialog]");
  for (let i = 0; i < 3; i++) await page.keyboard.press("Tab");
  assert.ok(await page.evaluate(() => !!document.activeElement.closest("[role=dialog]")));
  await page.keyboard.press("Escape");
});
test("a browser that is too old says so", async () => {
  const p = await page.context().newPage();
  await p.addInitScript(() => {
    const was = CSS.supports.bind(CSS);
    CSS.supports = (...all) => (/color-mix/.test(all.join()) ? false : was(...all));
  });
  await p.goto(studio.address);
  await wait_text(p, "#app", "too old for the studio");
  await p.close();
});
