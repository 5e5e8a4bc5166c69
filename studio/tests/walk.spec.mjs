// The walk of docs/memory.md by mouse alone: plain, accumulate, checkpoint, bf16, a budget; then the model is trained and watched.
// What the page says of each stack is what `adjoint plan` says of it.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close_all, open_page, program, start_browser, start_studio } from "./browser.mjs";
import { book, settled } from "./look.mjs";

let studio, browser, page;
const model = "ref",
  batch = 8;
const plan = (stack) =>
  JSON.parse(
    spawnSync(program, ["plan", "--model", model, "--batch", String(batch), "--stack", stack, "--json"], {
      cwd: studio.folder,
      encoding: "utf8",
    }).stdout,
  );
const shown = () =>
  page.evaluate(() => {
    const p = window.__studio.results.plan.value;
    return p ? { stack: p.stack, peak: p.peak_bytes } : null;
  });
const middle = async (locator) => {
  await locator.scrollIntoViewIfNeeded();
  const box = await locator.boundingBox();
  return [box.x + box.width / 2, box.y + box.height / 2];
};
const click = (locator) => locator.click();
async function drag(name) {
  await page.mouse.move(
    ...(await middle(page.locator(".palette li", { hasText: new RegExp(`^\\S ${name}\\b`) }).first())),
  );
  await page.mouse.down();
  const [x, y] = await middle(page.locator("ol.chips"));
  await page.mouse.move(x, y, { steps: 8 });
  await page.mouse.move(x + 4, y);
  await page.mouse.up();
}
// The stack bar says the bytes of the command's own plan, in the page's words.
async function expect_plan_with(name) {
  await page.waitForFunction((n) => window.__studio.results.plan.value?.stack?.includes(n), name, { timeout: 60_000 });
  await settled(page);
  const { stack, peak } = await shown();
  assert.equal(peak, plan(stack).peak_bytes, stack);
  const said = await page.locator(".facts[role=status]").textContent();
  assert.ok(said.includes(`peak ${(peak / 2 ** 20).toFixed(peak >= 100 * 2 ** 20 ? 0 : 1)} MiB`), said);
  return peak;
}

before(async () => {
  studio = await start_studio();
  writeFileSync(join(studio.folder, "book.txt"), book());
  browser = await start_browser();
  page = await open_page(browser, studio.address, { width: 1440, height: 900 });
  await page.waitForSelector(".arrow", { timeout: 60_000 });
  await page.waitForFunction(() => window.__studio.results.presets?.length > 0, null, { timeout: 30_000 });
  await page.locator("select[aria-label=Model]").selectOption(model); // a list of the browser's own, outside of the page
  // The small arrows at the right end of a field of numbers, the upper one until it says so many: a button that is held a little long
  // counts on by itself.
  const field = page.getByLabel("Batch", { exact: true }),
    { width, height } = await field.boundingBox();
  for (let clicks = 0, now; (now = Number(await field.inputValue())) !== batch; clicks++) {
    assert.ok(clicks < 50, `the field says ${now}`);
    await field.click({ position: { x: width - 9, y: height * (now < batch ? 0.3 : 0.75) } });
  }
  await page.mouse.click(600, 500);
  await page.waitForFunction(
    ([m, n]) => window.__studio.results.plan.value?.model === m && window.__studio.results.plan.value.batch === n,
    [model, batch],
    { timeout: 60_000 },
  );
});
after(close_all);

test("functors are dragged onto the stack one by one, and each plan is the command's", async () => {
  const plain = (await shown()).peak;
  assert.equal(plain, plan("").peak_bytes);
  await drag("accumulate");
  const parts = await expect_plan_with("accumulate");
  assert.ok(parts < plain, `${parts} of ${plain}`);
  await drag("checkpoint");
  const again = await expect_plan_with("checkpoint");
  assert.ok(again < parts, `${again} of ${parts}`);
  await drag("bf16");
  assert.ok((await expect_plan_with("bf16")) < again);
});

test("a budget is moved, and its stack is taken over", async () => {
  await click(page.locator("#tab-stack"));
  const slider = page.locator("input[type=range]").first();
  await slider.waitFor({ timeout: 30_000 });
  const box = await slider.boundingBox();
  await page.mouse.click(box.x + box.width * 0.6, box.y + box.height / 2);
  const take = page.getByRole("button", { name: /take/i }).first();
  await take.waitFor({ timeout: 120_000 });
  await click(take);
  await settled(page);
  assert.equal(await page.evaluate(() => window.__studio.results.refusal), null);
  const { stack, peak } = await shown();
  assert.equal(peak, plan(stack).peak_bytes, stack);
});

test("a model is trained and its loss is watched", async () => {
  await click(page.locator("#tab-runs"));
  if ((await page.getByRole("button", { name: "New run" }).getAttribute("aria-expanded")) === "false")
    await click(page.getByRole("button", { name: "New run" }));
  // Every step is measured, so that a fall is seen soon.
  await click(page.getByLabel("Other flags"));
  await page.keyboard.type("--log-every 1 --eval-every 0");
  await click(page.getByRole("button", { name: "Start", exact: true }));
  await page.waitForFunction(
    () => {
      const cell = document.querySelector("[data-loss]");
      return cell && Number.parseFloat(cell.textContent) > 0;
    },
    null,
    { timeout: 120_000 },
  );
  const first = Number.parseFloat(await page.locator("[data-loss]").first().textContent());
  await page.waitForFunction(
    (begin) => Number.parseFloat(document.querySelector("[data-loss]").textContent) < begin,
    first,
    { timeout: 120_000 },
  );
  await click(page.locator(".head").getByRole("button", { name: "Stop", exact: true }));
  await page.waitForFunction(
    () => /stopped|done/.test(document.querySelector(".head .state")?.textContent ?? ""),
    null,
    { timeout: 60_000 },
  );
});
