// The accessibility checker has nothing to say, in any view, light or dark.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close_all, open_page, start_browser, start_studio } from "./browser.mjs";
import { complaints, fit, own_model, settled } from "./look.mjs";

let studio, browser;
before(async () => {
  studio = await start_studio();
  browser = await start_browser();
});
after(close_all);

test("no complaint in light or dark", async () => {
  const page = await open_page(browser, studio.address);
  await page.waitForSelector(".arrow", { timeout: 30_000 });
  await page.evaluate(() => {
    void window.__studio.open_model("char");
    window.__studio.settings.set_stack("checkpoint(block)");
  });
  await page.waitForFunction(() => window.__studio.project.active === "char");
  const found = [];
  const complain = async (where, how) =>
    found.push(...(await complaints(page, null, how)).map((said) => `${where}: ${said}`));
  const check = async (where) => {
    await complain(where);
    // In the dark there are other colours, and nothing else is another.
    await page.emulateMedia({ colorScheme: "dark" });
    await page.waitForFunction(() => document.documentElement.dataset.theme === "dark");
    await complain(`${where}, dark`, { runOnly: ["color-contrast"] });
    await page.emulateMedia({ colorScheme: "light" });
    await page.waitForFunction(() => document.documentElement.dataset.theme === "light");
  };
  for (const tab of ["model", "step", "memory", "compare", "stack", "ranks", "runs"]) {
    await page.click(`#tab-${tab}`);
    await settled(page);
    await check(tab);
  }
  await page.locator(".palette .name").first().click();
  await page.waitForSelector(".rule");
  await settled(page);
  await check("functor");
  await page.click("#tab-model");
  await page.locator('[data-key="block^"]').first().focus();
  await page.keyboard.press("Enter");
  await page.waitForSelector('[data-key="block[0].gelu#1"]');
  await fit(page);
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
  await page.keyboard.press("Escape");
  // What is said below the view: good news, and bad news with the two ways out of a conflict.
  const text = await own_model(page, studio, "mine.scheme");
  await page.evaluate(() => {
    window.__studio.project.message = { text: "Saved mine.scheme", kind: "good" };
  });
  await page.waitForSelector(".banner:not(.bad)");
  await check("good news");
  await page.locator(".cm-content").focus();
  await page.keyboard.type("# mine");
  writeFileSync(join(studio.folder, "mine.scheme"), `# by somebody else\n${text}`);
  await page.keyboard.press("Control+s");
  await page.getByRole("button", { name: "Reload it" }).waitFor();
  await check("a conflict");
  await page.getByRole("button", { name: "Save under another name…" }).click();
  await page.waitForSelector(".offer");
  await check("another name");
  await page.getByRole("button", { name: "Not now" }).click();
  await page.getByRole("button", { name: "Rename or delete mine.scheme", exact: true }).click();
  await page.getByLabel("Another name of mine.scheme").waitFor();
  await check("the form of a file");
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByRole("button", { name: "Delete it for good" }).waitFor();
  await check("a file that is about to be deleted");
  studio.child.kill("SIGKILL");
  await page.waitForSelector(".banner[role=alert]", { timeout: 30_000 });
  await check("a server that is lost");
  assert.deepEqual(found, []);
  assert.deepEqual(page.mistakes, []);
});
