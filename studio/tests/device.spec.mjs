// The device whose seconds are predicted: chosen in the bar, asked of every plan, and remembered.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, before, test } from "node:test";
import { close_all, program, start_browser, start_studio } from "./browser.mjs";
import { ask, complaints, fresh, pictures, question, set, settled, tab, wait_text } from "./look.mjs";

let studio, browser, page;
const asked = [];
before(async () => {
  studio = await start_studio();
  browser = await start_browser();
  page = await fresh(browser, studio);
  page.on("request", (r) => {
    if (r.url().endsWith("api/ask")) asked.push(question(r).args ?? []);
  });
  await set(page, { model: "gpt2", batch: 32, stack: "checkpoint" });
});
after(close_all);

const choice = () => page.getByLabel("Seconds of", { exact: true });
const plan = (...more) => ask(page, ["plan", "--model", "gpt2", "--batch", "32", "--stack", "checkpoint", ...more]);
const chosen = async (device) => {
  await choice().selectOption(device);
  await settled(page);
};
const step_s = () => page.evaluate(() => window.__studio.results.plan.present?.step_s);

test("the choice has the devices that the program knows", async () => {
  const said = spawnSync(program, ["plan", "--model", "char", "--device", "nope"], { encoding: "utf8" }).stderr,
    names = /there are (.*), or a file/.exec(said)[1].split(", ");
  assert.deepEqual((await choice().locator("option").allTextContents()).sort(), names.sort());
  assert.equal(await choice().inputValue(), "cpu");
  assert.equal(await step_s(), (await plan()).step_s);
});
test("seconds, and whether it fits, are those of the chosen device", async () => {
  asked.length = 0;
  await choice().focus();
  await page.keyboard.type("h100"); // by the keyboard alone
  await page.waitForFunction(() => window.__studio.settings.device === "h100");
  await settled(page);
  const wanted = await plan("--device", "h100");
  assert.equal(await step_s(), wanted.step_s);
  assert.equal(wanted.fits, true);
  const facts = page.getByLabel("What the stack costs");
  assert.match(await facts.textContent(), /fits h100/);
  const plans = asked.filter((a) => a[0] === "plan");
  assert.ok(plans.length >= 2 && plans.every((a) => a[a.indexOf("--device") + 1] === "h100"), JSON.stringify(plans));
  assert.ok(asked.every((a) => a[0] === "plan" || !a.includes("--device")));
  await tab(page, "stack");
  await wait_text(page, "section[aria-labelledby=stack-costs]", "predicted for h100");
  assert.match(await page.locator(".verdict").textContent(), /fits into the memory of h100/);
  await set(page, { model: "gpt2", batch: 256 });
  assert.equal((await ask(page, ["plan", "--model", "gpt2", "--batch", "256", "--device", "h100"])).fits, false);
  assert.match(await facts.textContent(), /does not fit h100/);
  assert.match(await page.locator(".verdict").textContent(), /does not fit into the memory of h100/);
  assert.deepEqual(await pictures(page, "device-stack"), []);
  assert.deepEqual(await complaints(page), []);
  await page.emulateMedia({ colorScheme: "dark" });
  assert.deepEqual(await complaints(page), []);
  await page.emulateMedia({ colorScheme: "light" });
});
test("a budget asks for the device, too", async () => {
  await set(page, { model: "char", batch: 32 });
  asked.length = 0;
  await page.getByLabel("Budget in bytes, such as 2GB").fill("4GB");
  await page.getByLabel("Budget in bytes, such as 2GB").press("Enter");
  await page.locator(".answer .facts").waitFor({ timeout: 60_000 });
  const fit = asked.find((a) => a.includes("--fit"));
  assert.equal(fit[fit.indexOf("--device") + 1], "h100");
});
test("products above the memory of a GPU's plan are those of that plan", async () => {
  await set(page, { model: "char", batch: 8 });
  await tab(page, "memory");
  await wait_text(page, ".memory", "Planned for h100");
  await page.locator(".product").first().waitFor();
  await settled(page);
  const [rows, { owners }] = await page.evaluate(() => {
    const { states, timeline } = window.__studio.results;
    return [states.value.rows, timeline.value.timeline];
  });
  assert.ok(rows.length > 8);
  for (const { product, place, bytes } of rows) {
    const alive = (category) =>
      owners.filter((o) => o.category === category && o.from <= place && o.to > place).reduce((n, o) => n + o.bytes, 0);
    // Some of the gradients are parameters'.
    assert.ok(bytes >= alive("activations"), `${product} at ${place}`);
    assert.ok(bytes <= alive("activations") + alive("gradients"), `${product} at ${place}`);
  }
  assert.deepEqual(await pictures(page, "device-memory"), []);
  await chosen("cpu");
  assert.equal(await page.evaluate(() => window.__studio.settings.device), "");
});
test("the device is there again after a reload", async () => {
  await chosen("l4");
  await page.reload();
  await page.waitForFunction(() => window.__studio?.results.plan.value);
  await settled(page);
  assert.equal(await choice().inputValue(), "l4");
  assert.match(await page.evaluate(() => window.__studio.results.plan.value.device), /^l4/);
  assert.deepEqual(page.mistakes, []);
});
