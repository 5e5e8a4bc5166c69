// The page that is in the binary, as it is given to people: it opens, draws and asks for nothing from outside.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { close_all, open_page, start_browser, start_studio } from "./browser.mjs";

after(close_all);

test("the page in the binary opens and draws", async (t) => {
  const studio = await start_studio({ page_of: null });
  const { page: there } = await fetch(new URL("api/hello", studio.address)).then((r) => r.json());
  if (!there) {
    t.skip("this binary was built without the page");
    return;
  }
  const page = await open_page(await start_browser(), studio.address),
    outside = [];
  page.on("request", (r) => {
    if (!r.url().startsWith(studio.address) && !/^(data|blob):/.test(r.url())) outside.push(r.url());
  });
  await page.reload();
  await page.waitForSelector(".arrow", { timeout: 30_000 });
  assert.equal(await page.locator('[data-item="block^"] .power').textContent(), "12");
  assert.deepEqual(outside, []);
  assert.deepEqual(page.mistakes, []);
});
