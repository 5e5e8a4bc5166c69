// Pictures of every view, light and dark, at 1280 and 1920 wide: node tests/shots.mjs FOLDER [model]. They are to be looked at.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { close_all, open_page, start_browser, start_studio } from "./browser.mjs";

const [, , out = "shots", model = "gpt2"] = process.argv;
mkdirSync(out, { recursive: true });
const studio = await start_studio(),
  browser = await start_browser();
try {
  for (const width of [1280, 1920])
    for (const dark of [false, true]) {
      const page = await open_page(browser, studio.address, { width, height: width === 1280 ? 800 : 1080, dark });
      const name = (what) => join(out, `${what}-${width}-${dark ? "dark" : "light"}.png`);
      await page.waitForSelector(".arrow", { timeout: 20_000 });
      await page.evaluate((m) => window.__studio.open_model(m), model);
      await page.waitForFunction((m) => window.__studio.results.forward.value?.model === m, model, { timeout: 20_000 });
      await page.waitForTimeout(500);
      await page.screenshot({ path: name("model") });
      await page.locator('.arrow [data-key="block^"]').dblclick();
      await page.waitForSelector('.frame [data-key="block^"]');
      await page.waitForTimeout(700);
      await page.screenshot({ path: name("block") });
      await page.evaluate(() => window.__studio.settings.set_stack("checkpoint | bf16"));
      for (const tab of ["step", "memory", "compare", "stack", "ranks", "runs"]) {
        await page.click(`#tab-${tab}`);
        await page.waitForTimeout(600);
        await page.waitForFunction(
          () => {
            const r = window.__studio.results;
            return !r.forward.busy && !r.plan.busy && !r.step.busy && !r.timeline.busy && !r.states.busy;
          },
          null,
          { timeout: 60_000 },
        );
        await page.waitForTimeout(1500);
        await page.screenshot({ path: name(tab) });
      }
      await page.locator(".palette .name", { hasText: /dora$/ }).first().click();
      await page.waitForSelector(".rule");
      await page.waitForTimeout(2000);
      await page.locator(".rule").last().hover();
      await page.waitForTimeout(300);
      await page.screenshot({ path: name("functor") });
      if (page.mistakes.length > 0) console.log(name("?"), page.mistakes);
      await page.context().close();
    }
} finally {
  await close_all();
}
