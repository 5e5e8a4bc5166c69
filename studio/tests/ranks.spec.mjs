// Ranks, as a person looks at them: the mesh, who holds what, a pipeline's schedule and one of its slots.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { close_all, open_page, start_browser, start_studio } from "./browser.mjs";
import { ask, complaints, pictures, set, settled, tab } from "./look.mjs";

let studio, browser, page;
before(async () => {
  studio = await start_studio();
  browser = await start_browser();
  page = await open_page(browser, studio.address);
  await page.waitForFunction(() => window.__studio?.results.functors.length > 0);
  await set(page, { model: "gpt2", batch: 1 });
  await tab(page, "ranks");
});
after(close_all);

test("without ranks the view says so and offers two stacks", async () => {
  await page.waitForFunction(() => /runs on one rank/.test(document.querySelector("#view").textContent));
  assert.equal(await page.locator(".none li button").count(), 2);
  assert.deepEqual(await complaints(page), []);
});
test("a pipeline's schedule is a chart whose slots do not overlap and follow the messages", async () => {
  await page.getByRole("button", { name: "pipeline(4, parts=8)" }).click();
  await page.locator(".slot").first().waitFor({ timeout: 30_000 });
  await settled(page);
  assert.equal(await page.locator(".slot").count(), 4 * 8 * 2);
  const boxes = await page.locator(".slot").evaluateAll((all) =>
    all.map((g) => {
      const r = g.querySelector("rect");
      return { slot: g.dataset.slot, x: Number(r.getAttribute("x")), w: Number(r.getAttribute("width")) };
    }),
  );
  const at = (stage, slot) => boxes.find((b) => b.slot.startsWith(`${stage}:${slot}.`));
  for (let stage = 0; stage < 4; stage++) {
    const row = boxes.filter((b) => b.slot.startsWith(`${stage}:`));
    for (let i = 1; i < row.length; i++)
      assert.ok(
        row[i].x >= row[i - 1].x + row[i - 1].w - 0.8,
        `${row[i].slot} begins when ${row[i - 1].slot} has ended`,
      );
  }
  for (let stage = 1; stage < 4; stage++) {
    assert.ok(
      at(stage, "F0").x >= at(stage - 1, "F0").x + at(stage - 1, "F0").w - 0.5,
      "a stage begins with what the one before sent",
    );
    assert.ok(at(stage - 1, "B0").x >= at(stage, "B0").x + at(stage, "B0").w - 0.5, "gradients go the other way");
  }
  assert.match(
    await page.locator("section[aria-labelledby=ranks-schedule]").textContent(),
    /1f1b, 8 parts through 4 stages.*bubble \d/s,
  );
});
test("before and after its slots a stage prepares and updates, which is not all waiting", async () => {
  const { pipeline } = await ask(page, [
    ...["plan", "--model", "gpt2", "--batch", "8", "--stack", "pipeline(4, parts=8)", "--timeline", "--json"],
  ]);
  for (const [i, stage] of pipeline.stages.entries()) {
    const drawn = await page
      .locator(`[data-outside="${i}"]`)
      .evaluateAll((all) => all.map((r) => ({ width: Number(r.getAttribute("width")), said: r.textContent })));
    const per_second = await page
      .locator(`[data-slot^="${i}:F0"] rect`)
      .evaluate((r, s) => Number(r.getAttribute("width")) / s, stage.slots[0].end_s - stage.slots[0].begin_s);
    const work = stage.busy_s - stage.slots.reduce((n, s) => n + s.end_s - s.begin_s, 0);
    assert.ok(Math.abs(drawn.reduce((n, d) => n + d.width, 0) - work * per_second) < 1, `stage ${i}`);
    assert.match(drawn[0].said, /of preparation/);
    assert.match(drawn.at(-1).said, /of update/);
    for (const w of stage.outside)
      assert.ok(
        stage.slots.every((s) => s.end_s <= w.begin_s + 1e-9 || s.begin_s >= w.end_s - 1e-9),
        "nothing is done beside a slot",
      );
  }
  const legend = await page.locator("section[aria-labelledby=ranks-schedule] .key").allTextContents();
  assert.ok(
    legend.some((l) => /preparation,\s+update/.test(l)),
    legend.join("; "),
  );
  const detail = page.locator(".detail .facts");
  await page.locator('[data-slot^="0:F0"]').click();
  assert.match(await detail.textContent(), /before it [\d.]+ [µm]s of preparation(?! and)/);
  await page.locator('[data-slot^="3:F0"]').click();
  assert.match(await detail.textContent(), /of preparation and waiting/);
  await page.locator('[data-slot^="0:B0"]').click();
  assert.match(await detail.textContent(), /of waiting/);
});
test("a slot that is clicked shows its morphisms and what is alive after it", async () => {
  await page.locator('[data-slot^="2:B2"]').click();
  const detail = page.locator(".detail");
  assert.match(await detail.locator("h3").textContent(), /B2\.2 backward of part 2 through chunk 2, on stage 2/);
  const calls = await detail.locator(".calls button").allTextContents();
  assert.ok(
    calls.some((c) => /^block\[10\].*:grad$/.test(c)),
    "stage 2 has blocks 7 to 10, and goes backward through them",
  );
  assert.ok(!calls.some((c) => /^block\[(0|3|11)\]/.test(c)), "and no others");
  assert.match(await detail.locator(".parts").textContent(), /part 2/);
  assert.ok(await page.evaluate(() => window.__studio.view.lit.size > 0), "its morphisms are lit in the drawing");
  await detail.locator(".calls button").first().click();
  assert.equal(await page.evaluate(() => window.__studio.view.selected[0].source), calls[0]);
  // The keyboard goes along the list of a stage, and to other stages.
  await page.locator("[role=listbox]").focus();
  await page.keyboard.press("ArrowRight");
  assert.match(await detail.locator("h3").textContent(), /F4\.2/);
  await page.keyboard.press("ArrowDown");
  assert.match(await detail.locator("h3").textContent(), /on stage 3/);
  assert.match(await page.locator("#ranks-memory").textContent(), /stage 3/);
});
test("the memory of a stage is a grid: a part is inside as t to the number of its blocks", async () => {
  await page.locator("#rank-1").click();
  const grid = page.locator("section[aria-labelledby=ranks-memory] table");
  const first = await grid.locator("tbody tr").first().locator("td").first().textContent();
  assert.match(first, /t\s*4/, "stage 1 has four blocks");
  assert.deepEqual(await pictures(page, "ranks-pipeline"), []);
  assert.deepEqual(await complaints(page), []);
});
test("memory says whose it is, and stages count from 0 wherever they are said", async () => {
  await tab(page, "memory");
  await page.waitForFunction(
    () => /Memory of rank 0 of 4 \(stage 0, the largest\)/.test(document.querySelector("#view h3")?.textContent ?? ""),
    null,
    { timeout: 30_000 },
  );
  await tab(page, "stack");
  const did = page.locator("ol[aria-label^='The stack'] .did");
  await did.waitFor({ timeout: 30_000 });
  assert.match(await did.textContent(), /on stage 0.*on stage 3/);
  assert.doesNotMatch(await did.textContent(), /stage 4/);
  await tab(page, "compare");
  await page.evaluate(() => window.__studio.view.select({ kind: "object", source: "block[11].qkv" }));
  await page.waitForFunction(() => /stage 3/.test(document.querySelector(".fate")?.textContent ?? ""), null, {
    timeout: 30_000,
  });
  assert.doesNotMatch(await page.locator(".fate").textContent(), /stage 4/);
  await tab(page, "ranks");
});
test("the mesh is changed where it is shown", async () => {
  await page.getByLabel("stage", { exact: true }).fill("2");
  await page.getByLabel("stage", { exact: true }).press("Tab");
  await settled(page);
  assert.equal(await page.evaluate(() => window.__studio.settings.stack), "pipeline(2, parts=8)");
  await page.waitForFunction(() => document.querySelectorAll(".names > span").length === 2);
});
test("who holds what: pieces, terms of sums, and what is sent", async () => {
  await set(page, { model: "gpt2", batch: 8, stack: "data_parallel(2) | zero(3) | tensor_parallel(2)" });
  await page.waitForFunction(() => document.querySelectorAll(".grid button").length === 4);
  const rows = await page.locator("section[aria-labelledby=ranks-holds] tbody tr").allTextContents();
  assert.ok(
    rows.some((r) => /parameters.*1\/2 of.*vocab.*1\/2 of/.test(r)),
    rows.join("\n"),
  );
  assert.ok(rows.some((r) => /optimizer state.*1\/2 of/.test(r)));
  assert.ok(rows.some((r) => /gradients, before ranks have summed them.*a term of the sum/.test(r)));
  // With zero(3) a rank holds half of the pieces that tensor_parallel leaves it.
  const bytes = await page.evaluate(() => {
    const s = window.__studio.results.step.value.scheme,
      inputs = new Set(s.inputs);
    return s.objects.filter((o, i) => inputs.has(i) && o.role === "parameter").reduce((n, o) => n + o.bytes, 0);
  });
  assert.ok(Math.abs(bytes / (124439808 * 4) - 0.25) < 0.01, `${bytes}`);
  const sent = await page.locator("section[aria-labelledby=ranks-sent] tbody tr").allTextContents();
  assert.ok(
    sent.some((r) => /data.*all-gather/.test(r)) &&
      sent.some((r) => /data.*reduce-scatter/.test(r)) &&
      sent.some((r) => /tensor.*all-reduce/.test(r)),
    sent.join("\n"),
  );
  await page.locator("section[aria-labelledby=ranks-holds] tbody button").first().click();
  assert.ok((await page.locator("tr.one").count()) > 0);
  assert.deepEqual(await pictures(page, "ranks-mesh"), []);
  assert.deepEqual(await complaints(page), []);
  await page.emulateMedia({ colorScheme: "dark" });
  assert.deepEqual(await complaints(page), []);
  assert.deepEqual(page.mistakes, []);
});
