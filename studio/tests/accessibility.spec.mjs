// The accessibility checker has nothing to say, in any view, light or dark.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { open_page, start_browser, start_studio } from "./browser.mjs";
import { frames } from "./look.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
let studio, browser;
before(async () => {
  studio = await start_studio();
  browser = await start_browser();
});
after(async () => {
  await browser?.close();
  await studio?.stop();
});

test("no complaint in light or dark", async () => {
  const page = await open_page(browser, studio.address);
  await page.waitForSelector(".arrow", { timeout: 30_000 });
  await page.evaluate(() => {
    void window.__studio.open_model("char");
    window.__studio.settings.set_stack("checkpoint(block)");
  });
  await page.waitForFunction(() => window.__studio.project.active === "char");
  await page.evaluate(axe);
  const complaints = [];
  const check = async (where) => {
    await complain(where);
    // In the dark there are other colours, and nothing else is another.
    await page.emulateMedia({ colorScheme: "dark" });
    await page.waitForFunction(() => document.documentElement.dataset.theme === "dark");
    await complain(`${where}, dark`, { runOnly: ["color-contrast"] });
    await page.emulateMedia({ colorScheme: "light" });
    await page.waitForFunction(() => document.documentElement.dataset.theme === "light");
  };
  const complain = async (where, what = {}) => {
    const found = await page.evaluate((w) => window.axe.run(document, { resultTypes: ["violations"], ...w }), what);
    for (const v of found.violations)
      complaints.push(
        `${where}: ${v.id}: ${v.help}: ${v.nodes
          .slice(0, 3)
          .map((n) => n.html.slice(0, 160))
          .join(" | ")}`,
      );
  };
  for (const tab of ["model", "step", "memory", "compare", "stack", "ranks", "runs"]) {
    await page.click(`#tab-${tab}`);
    await page.waitForFunction(
      () => {
        const r = window.__studio.results;
        return !r.forward.busy && !r.plan.busy && !r.step.busy && !r.timeline.busy && !r.states.busy;
      },
      null,
      { timeout: 30_000 },
    );
    await frames(page, 8);
    await check(tab);
  }
  await page.locator(".palette .name").first().click();
  await page.waitForSelector(".rule");
  await check("functor");
  await page.click("#tab-model");
  await page.locator('[data-key="block^"]').first().focus();
  await page.keyboard.press("Enter");
  await page.waitForSelector('[data-key="block[0].gelu#1"]');
  await page.click("button[aria-label^='Fit']");
  await page.click('[data-key="block[0].gelu#1"]');
  await page.waitForFunction(() => /FLOPs/.test(document.querySelector(".inspector").textContent));
  await page.click(".ops h2 button");
  await check("a call in the inspector, the list of ops");
  await page.click('[data-key="block[0].gelu#1"]', { button: "right" });
  await page.waitForSelector("[role=menu]");
  await check("menu");
  await page.getByRole("menuitem", { name: /Insert an op behind/ }).click();
  await page.waitForSelector(".menu input");
  await check("a menu that asks");
  await page.keyboard.press("Escape");
  await page.locator(".cm-content").focus();
  await page.keyboard.type("#");
  await page.waitForSelector(".offer");
  await check("the offer of a copy");
  await page.getByRole("button", { name: "Not now" }).click();
  await page.evaluate(() => window.__studio.settings.set_stack("checkpoint(90)"));
  await page.waitForSelector(".refusal");
  await page.click("button[aria-label='Change parameters of checkpoint']");
  await page.waitForSelector(".sheet [aria-label='Parameters of checkpoint as text']");
  await check("a refusal, and the sheet of parameters");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Control+k");
  await page.waitForSelector("[role=dialog]");
  await check("palette");
  assert.deepEqual(complaints, []);
  await page.context().close();
});
