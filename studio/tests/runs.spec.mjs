// Runs, as a person has them: train a small model and watch its loss, stop it, reload, open a second tab, resume, lose the server.
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close_all, open_page, start_browser, start_studio, says } from "./browser.mjs";
import { book, complaints, pictures, set, tab, wait_text } from "./look.mjs";

let studio, browser, page;
const loss_cell = (path, p = page) => p.locator(`[data-loss="${path}"]`);
const wait_state = (state, p = page) =>
  p.waitForFunction((s) => document.querySelector(".head .state")?.textContent.startsWith(s), state, {
    timeout: 60_000,
  });
// The last line may be half written while a run goes on.
const lines = (path) =>
  readFileSync(join(studio.folder, path, "metrics.jsonl"), "utf8")
    .split("\n")
    .slice(0, -1)
    .map((l) => JSON.parse(l));
async function form(p, { steps, batch = 4, flags, name }) {
  if ((await p.getByRole("button", { name: "New run" }).getAttribute("aria-expanded")) === "false")
    await p.getByRole("button", { name: "New run" }).click();
  await p.getByLabel("steps", { exact: true }).fill(String(steps));
  await p.getByLabel("batch", { exact: true }).fill(String(batch));
  await p.getByLabel("Other flags").fill(flags);
  if (name) await p.getByLabel("Folder of the run").fill(name);
}

before(async () => {
  studio = await start_studio();
  writeFileSync(join(studio.folder, "book.txt"), book());
  browser = await start_browser();
  page = await open_page(browser, studio.address);
  await page.waitForFunction(() => window.__studio?.results.functors.length > 0);
  await set(page, { sets: { layers: "2", hidden: "64" } });
  await page.evaluate(() =>
    window.__studio.remember("model", { model: "char", batch: 4, sets: { layers: "2", hidden: "64" }, stack: "" }),
  );
  await tab(page, "runs");
});
after(close_all);

test("a small model is trained from the form, and its loss is seen to fall", async () => {
  assert.equal(await page.getByLabel("Data", { exact: true }).inputValue(), "book.txt");
  await form(page, { steps: 200, flags: "--threads 1 --log-every 5 --eval-every 100" });
  const line = await page.locator("form .line code").textContent();
  assert.equal(
    line,
    "adjoint train --model char --set layers=2 --set hidden=64 --data book.txt --steps 200 --batch 4 --threads 1 --log-every 5 --eval-every 100 --out runs/char",
  );
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await loss_cell("runs/char").waitFor({ timeout: 30_000 });
  await page.waitForFunction(() => /\d/.test(document.querySelector("[data-loss]")?.textContent ?? ""), null, {
    timeout: 30_000,
  });
  await wait_state("done");
  // What the page shows last is what the run's folder says, to the digits that are shown.
  const all = lines("runs/char");
  await page.waitForFunction(
    (l) => document.querySelector("[data-loss]").textContent === l,
    all.at(-1).loss.toFixed(4),
  );
  assert.ok(all.at(-1).loss < all[0].loss - 0.5, `${all[0].loss} to ${all.at(-1).loss}`);
  await says(page, "[role=log]", /saved step 200 of 200 to runs\/char/);
  assert.equal(await page.locator(".head .line").textContent(), line);
  const drawn = await page
    .locator(".canvas canvas")
    .first()
    .evaluate((c) => {
      const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
      let n = 0;
      for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 200 && d[i + 2] > d[i] + 60) n++;
      return n;
    });
  assert.ok(drawn > 200, `${drawn} blue pixels of a curve`);
  assert.match(await page.locator("[role=img]").first().getAttribute("aria-label"), /^Loss over steps: runs\/char \d/);
  assert.match(await page.locator("tbody tr").first().textContent(), /MiB/, "the memory that the plan needs");
});
test("a run is stopped, saved, and there after a reload and in a second tab", async () => {
  await form(page, { steps: 100000, flags: "--threads 1 --log-every 5 --eval-every 0", name: "long" });
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.waitForFunction(
    () => /\d/.test(document.querySelector('[data-loss="runs/long"]')?.textContent ?? ""),
    null,
    { timeout: 30_000 },
  );
  // Two runs on one plot, by colours that differ.
  assert.deepEqual(await page.locator(".last tbody tr td:first-child").allTextContents(), ["runs/char", "runs/long"]);
  const second = await page.context().newPage();
  await second.goto(studio.address);
  await tab(second, "runs");
  await loss_cell("runs/long", second).waitFor({ timeout: 30_000 });
  await second.waitForFunction(() => /\d/.test(document.querySelector('[data-loss="runs/long"]').textContent));
  await page.bringToFront();
  await page.reload();
  await wait_state("running");
  await page.waitForFunction(() => /\d/.test(document.querySelector('[data-loss="runs/long"]')?.textContent ?? ""));
  await wait_text(page, "[role=log]", "parameters");
  await page.locator(".runs li", { hasText: "runs/long" }).getByRole("button", { name: "Stop" }).click();
  await wait_state("stopped");
  assert.ok(existsSync(join(studio.folder, "runs/long/save.json")));
  await second.bringToFront();
  await second.waitForFunction(
    () =>
      [...document.querySelectorAll(".runs li")].some(
        (li) => /runs\/long/.test(li.textContent) && /Resume/.test(li.textContent),
      ),
    null,
    { timeout: 30_000 },
  );
  await second.close();
  await page.bringToFront();
});
test("it is resumed where it stopped, and goes on while the server is not there", async () => {
  const before = lines("runs/long").at(-1).step;
  await page.locator(".runs li", { hasText: "runs/long" }).getByRole("button", { name: "Resume" }).click();
  await wait_state("running");
  await page.waitForFunction(
    (n) => Number(document.querySelector('[data-loss="runs/long"]')?.previousElementSibling?.textContent) > n,
    before,
    { timeout: 30_000 },
  );
  assert.match(await page.locator(".head .line").textContent(), /^adjoint train --resume --out runs\/long$/);
  studio.child.kill("SIGSTOP");
  await page.getByText("server does not answer").waitFor({ timeout: 30_000 });
  const then = lines("runs/long").at(-1).step;
  studio.child.kill("SIGCONT");
  await page.getByText("server does not answer").waitFor({ state: "detached", timeout: 30_000 });
  await page.waitForFunction(
    (n) => Number(document.querySelector('[data-loss="runs/long"]')?.previousElementSibling?.textContent) > n,
    then,
    { timeout: 30_000 },
  );
  await page.locator(".head").getByRole("button", { name: "Stop" }).click();
  await wait_state("stopped");
});
test("plots are by tokens and smoothed, and a run is taken off", async () => {
  await page.getByRole("button", { name: "tokens", exact: true }).click();
  assert.match(await page.locator("[role=img]").first().getAttribute("aria-label"), /^Loss over tokens/);
  await page.getByRole("slider", { name: "smoothing" }).fill("0.9");
  await page.locator(".runs label", { hasText: "runs/char" }).getByRole("checkbox").uncheck();
  assert.deepEqual(await page.locator(".last tbody tr td:first-child").allTextContents(), ["runs/long"]);
  await page.locator(".runs label", { hasText: "runs/char" }).getByRole("checkbox").check();
  assert.deepEqual(await pictures(page, "runs"), []);
  assert.deepEqual(await complaints(page), []);
  await page.emulateMedia({ colorScheme: "dark" });
  assert.deepEqual(await complaints(page), []);
  await page.emulateMedia({ colorScheme: "light" });
});
test("a run writes a text, and the present model is verified", async () => {
  await page.getByRole("button", { name: "More about runs/char" }).click();
  await page.getByLabel("Text to go on from").fill("the king");
  await page.getByRole("button", { name: "Generate" }).click();
  await page.waitForFunction(() => /generate/.test(document.querySelector(".head .line")?.textContent ?? ""));
  await wait_state("done");
  await says(page, "[role=log]", /^the king./);
  await set(page, { sets: { layers: "2", hidden: "64" }, stack: "checkpoint(block)" });
  await page.locator("section[aria-labelledby=runs-model]").getByRole("button", { name: "Verify" }).click();
  await page.waitForFunction(() => /verify/.test(document.querySelector(".head .line")?.textContent ?? ""));
  await wait_state("done");
  await says(page, "[role=log]", /exact/);
});
test("what cannot be trained is said beside Start and in the console, and leaves nothing", async () => {
  await form(page, { steps: 10, flags: "--no-such-flag", name: "never" });
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await wait_state("failed");
  await says(page, "[role=log]", /there is no flag '--no-such-flag'/);
  assert.ok(!existsSync(join(studio.folder, "runs/never")));
  const alert = page.locator("form [role=alert]");
  await alert.waitFor({ timeout: 30_000 });
  assert.match(await alert.textContent(), /there is no flag '--no-such-flag'/);
  assert.equal(await page.getByLabel("Folder of the run").inputValue(), "never");
  // A wrong value is said at once as well, the folder's name stays, and no run that never began stands among the last values.
  await page.getByLabel("Other flags").fill("");
  await page.getByLabel("Folder of the run").fill("");
  await page.getByLabel("steps", { exact: true }).fill("ten");
  const line = await page.locator("form .line code").textContent();
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.waitForFunction(
    () => /--steps: wanted a whole number/.test(document.querySelector("form [role=alert]")?.textContent ?? ""),
    null,
    { timeout: 30_000 },
  );
  assert.equal(await page.locator("form .line code").textContent(), line);
  await page.waitForFunction(
    () => ![...document.querySelectorAll(".last td:first-child")].some((td) => /char-2|never/.test(td.textContent)),
    null,
    { timeout: 30_000 },
  );
  await page.getByLabel("steps", { exact: true }).fill("");
  assert.deepEqual(page.mistakes, []);
});
