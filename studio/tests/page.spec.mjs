// What a person would do with the page, in a real browser against the real program.
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { close_all, free_port, start_browser, start_studio } from "./browser.mjs";
import {
  fit as fit_drawing,
  fresh as fresh_page,
  keep_messages,
  key,
  own_model,
  saved,
  settled as all_settled,
  text_of as read_text,
  wait_text as wait_for,
  was_said,
} from "./look.mjs";

let studio, browser, page;
const text_of = (p = page) => read_text(p);
const wait_text = (selector, wanted, p = page) => wait_for(p, selector, wanted);
const settled = (p = page) => all_settled(p);
const fresh = (options) => fresh_page(browser, studio, options);
const fit = (p = page) => fit_drawing(p);
// Labels of lines and of what is made again through which a line runs.
const crossed = () =>
  page.evaluate(() => {
    const labels = [
      ...document.querySelectorAll(".words.type"),
      ...document.querySelectorAll(".arrow[data-item^='again '] text"),
    ].map((t) => ({ text: t.textContent, box: t.getBBox() }));
    const out = new Set();
    for (const line of document.querySelectorAll(".line[data-line]")) {
      const all = line.getTotalLength();
      for (let at = 0; at < all; at += 2) {
        const { x, y } = line.getPointAtLength(at);
        for (const { text, box } of labels)
          if (x > box.x && x < box.x + box.width && y > box.y + 2 && y < box.y + box.height - 2) out.add(text);
      }
    }
    return [...out];
  });
async function put_cursor_behind(p, piece) {
  await p.click(".cm-content");
  await p.keyboard.press("Control+f");
  await p.waitForSelector(".cm-search");
  await p.keyboard.press("Control+a");
  await p.keyboard.type(piece);
  await p.keyboard.press("Enter");
  await p.keyboard.press("Escape");
  await p.keyboard.press("ArrowRight");
}

before(async () => {
  studio = await start_studio();
  browser = await start_browser();
});
after(close_all);

describe("the chain", () => {
  before(async () => {
    page = await fresh();
  });
  after(async () => {
    await page.context().close();
    assert.deepEqual(page.mistakes, []);
  });

  test("at first sight it is embed, block^12, readout and loss", async () => {
    assert.equal(await page.locator('[data-item="block^"] .power').textContent(), "12");
    const names = await page.locator(".arrow .label").allTextContents();
    assert.deepEqual(names.sort(), ["block12", "embed", "loss", "readout"]);
    assert.match(
      await page.locator(".point:has(.name:text-is('logits'))").first().textContent(),
      /f32\[1, 1024, 50257\].*196 MiB/s,
    );
  });
  test("an arrow opens in place, down to the body of an op, and closes again", async () => {
    await page.dblclick(key("block^"));
    await page.waitForSelector(key("block[0].attention#1"));
    assert.equal(await page.locator('.frame [data-key="block^"]').count(), 1);
    // What was opened is in sight, at a size that reads, above the buttons.
    await page.waitForFunction(
      () => {
        const box = document.querySelector('.frame [data-key="block^"] .edge').getBoundingClientRect(),
          view = document.querySelector(".diagram").getBoundingClientRect(),
          buttons = document.querySelector(".tools").getBoundingClientRect();
        return box.left >= view.left && box.right <= view.right && box.top >= view.top && box.bottom <= buttons.top;
      },
      null,
      { timeout: 30_000 },
    );
    await fit();
    await page.dblclick(key("block[0].gelu#1"));
    await wait_text(".frame .body", "sigmoid");
    await fit();
    await page.click(key("block[0].qkv"));
    assert.match(await page.locator(".inspector").textContent(), /linear, forward/);
    await page.keyboard.press("Escape");
    await page.waitForSelector('.arrow [data-key="block^"]');
  });
  test("the keyboard goes along morphisms, opens and closes", async () => {
    await fit();
    await page.click('.arrow [data-key="(embed)"]');
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowRight");
    await page.waitForFunction(() => document.activeElement.dataset.key === "block^");
    await page.keyboard.press("Enter");
    await page.waitForSelector('.frame [data-key="block^"]');
    await page.keyboard.press("Escape");
    await page.waitForSelector('.arrow [data-key="block^"]');
  });
  test("a repetition unfolds and folds", async () => {
    await fit();
    await page.click('.arrow [data-key="block^"]');
    await page.keyboard.press("u");
    await page.waitForSelector(key("block[11]"));
    await page.locator('.frame [data-key="block^"]').focus();
    await page.keyboard.press("u");
    await page.waitForSelector('.arrow [data-key="block^"]');
    assert.equal(await page.locator(key("block[11]")).count(), 0);
  });
});

describe("text and drawing", () => {
  before(async () => {
    page = await fresh();
    await own_model(page, studio, "mine.scheme");
  });
  after(async () => {
    await page.context().close();
    assert.deepEqual(page.mistakes, []);
  });

  test("a text of the library is changed as a copy, which the first keystroke offers", async () => {
    const p = await fresh();
    await p.click(".cm-content");
    await p.keyboard.press("Control+Home");
    await p.keyboard.type("#");
    await p.waitForSelector(".offer");
    await p.keyboard.press("Enter");
    await p.waitForFunction(() => window.__studio.project.active === "my_gpt2.scheme");
    await p.waitForFunction(() => window.__studio.project.text.text.startsWith("## GPT-2"));
    assert.ok(existsSync(join(studio.folder, "my_gpt2.scheme")));
    await settled(p);
    assert.equal(await p.locator('[data-item="block^"] .power').textContent(), "12");
    await p.context().close();
  });
  test("typing redraws, and what was open stays open", async () => {
    await page.click('.arrow [data-key="block^"]');
    await page.keyboard.press("Enter");
    await page.waitForSelector(key("block[0].gelu#1"));
    await put_cursor_behind(page, "h = gelu");
    await page.keyboard.press("Backspace");
    for (let i = 0; i < 3; i++) await page.keyboard.press("Backspace");
    await page.keyboard.type("silu");
    await page.waitForSelector(key("block[0].silu#1"), { timeout: 30_000 });
    assert.equal(await page.locator(key("block[0].gelu#1")).count(), 0);
  });
  test("a broken text keeps the drawing and underlines the place", async () => {
    await put_cursor_behind(page, "h = silu");
    await page.keyboard.type("x");
    await page.waitForSelector(".cm-lintRange-error", { timeout: 30_000 });
    assert.match(
      await page.locator(".mistake").textContent(),
      /silux: there is no such op or box; did you mean 'silu'/,
    );
    assert.equal(await page.locator(key("block[0].silu#1")).count(), 1);
    await page.keyboard.press("Backspace");
    await page.waitForFunction(() => !document.querySelector(".cm-lintRange-error"), null, { timeout: 30_000 });
  });
  test("an op is inserted on an arrow from the menu, and undo takes it back", async () => {
    const was = await text_of();
    await fit();
    await page.click(key("block[0].proj"), { button: "right" });
    assert.equal(await page.evaluate(() => window.__studio.view.selected[0]?.source), "block[0].proj");
    await page.getByRole("menuitem", { name: /Insert an op behind/ }).click();
    // What is no op is refused, and the nearest is offered.
    await page.keyboard.type("tahn");
    await page.keyboard.press("Enter");
    assert.match(await page.locator(".menu [role=alert]").textContent(), /There is no op or box 'tahn'/);
    assert.equal(await text_of(), was);
    await page.locator(".menu [role=alert]").getByRole("button", { name: "tanh" }).click();
    await page.waitForSelector(key("block[0].tanh#1"), { timeout: 30_000 });
    const now = await text_of();
    assert.equal(
      now,
      was.replace(
        "a = linear(a, hidden, init=normal(0.02/sqrt(2*layers)), name=proj)",
        "a = tanh(linear(a, hidden, init=normal(0.02/sqrt(2*layers)), name=proj))",
      ),
    );
    await page.click(".cm-content");
    await page.keyboard.press("Control+z");
    await page.waitForFunction((t) => window.__studio.project.text.text === t, was);
    await page.waitForFunction((k) => !document.querySelector(k), key("block[0].tanh#1"), { timeout: 30_000 });
  });
  test("by keyboard: insert, delete, rename, change a size, repeat, fold", async () => {
    const was = await text_of();
    const on = async (k, letter, typed) => {
      await fit();
      await page.locator(key(k)).first().focus();
      await page.keyboard.press(letter);
      if (typed !== undefined) {
        await page.waitForSelector(".menu input");
        await page.keyboard.press("Control+a");
        await page.keyboard.type(typed);
        await page.keyboard.press("Enter");
      }
    };
    const became = async (f) => {
      await page
        .waitForFunction((t) => window.__studio.project.text.text === t, f, { timeout: 30_000 })
        .catch(async () => assert.equal(await text_of(), f));
      await settled();
    };
    await on("block[0].silu#1", "i", "dropout(0.1)");
    let text = was.replace(
      "h = silu(linear(layer_norm(x, eps=eps), ffn, name=up))",
      "h = dropout(silu(linear(layer_norm(x, eps=eps), ffn, name=up)), 0.1)",
    );
    await became(text);
    await page.waitForSelector("[data-key^='block[0].dropout']");
    await on("block[0].dropout#2", "Delete");
    await became(was);
    text = was;
    await on("block[0].qkv", "r", "packed");
    text = text.replace("qkv = linear(", "packed = linear(").replace("attention(qkv,", "attention(packed,");
    await became(text);
    await on("o:block[0].silu#1", "r", "wide");
    text = text.replace("h = silu(", "wide = silu(").replace("linear(h, hidden", "linear(wide, hidden");
    await became(text);
    await on("o:block[0].add#1", "s", "64");
    text = text.replace("preset char: layers=4 hidden=128", "preset char: layers=4 hidden=64");
    await became(text);
    await on("block^", "p", "3");
    text = text.replace("block^layers(", "block^3(");
    await became(text);
    await page.waitForFunction((k) => document.querySelector(k)?.textContent === "3", '[data-item="block^"] .power', {
      timeout: 30_000,
    });
    await on("block[0].up", "f", "widen");
    await page.waitForFunction(() => /^widen /m.test(window.__studio.project.text.text), null, { timeout: 30_000 });
    await page.waitForSelector(key("block[0].widen"), { timeout: 30_000 });
    for (let i = 0; i < 5; i++) {
      await page.click(".cm-content");
      await page.keyboard.press("Control+z");
    }
    await became(was);
  });
  test("an op dropped on an arrow is inserted there, and a link from an object makes a call read it", async () => {
    const was = await text_of();
    await fit();
    await page.click(".ops h2 button");
    await page.locator(".ops li", { hasText: /^tanh$/ }).dragTo(page.locator(key("block[0].up")));
    await page.waitForFunction(
      (t) => window.__studio.project.text.text === t,
      was.replace(
        "silu(linear(layer_norm(x, eps=eps), ffn, name=up))",
        "silu(tanh(linear(layer_norm(x, eps=eps), ffn, name=up)))",
      ),
      { timeout: 30_000 },
    );
    await page.click(".cm-content");
    await page.keyboard.press("Control+z");
    await page.waitForFunction((t) => window.__studio.project.text.text === t, was);
    await settled();
    await fit();
    // From the packed q, k and v to the map behind the attention.
    const from = await page.locator('[data-key="o:block[0].qkv"] .grip').boundingBox(),
      to = await page.locator(key("block[0].proj")).boundingBox();
    await page.mouse.move(from.x + from.width / 2, from.y + from.height / 2);
    await page.mouse.down();
    await page.mouse.move(to.x + to.width / 2, to.y + 8, { steps: 6 });
    await page.mouse.up();
    await page.waitForFunction(
      (t) => window.__studio.project.text.text === t,
      was.replace("a = linear(a, hidden, init", "a = linear(qkv, hidden, init"),
      { timeout: 30_000 },
    );
    await page.click(".cm-content");
    await page.keyboard.press("Control+z");
    await page.waitForFunction((t) => window.__studio.project.text.text === t, was);
  });
  test("the drawing is saved as SVG and PNG, whole", async () => {
    const get = async (name) => {
      const [d] = await Promise.all([page.waitForEvent("download"), page.click(`.tools button:has-text("${name}")`)]);
      return readFileSync(await d.path());
    };
    const svg = (await get("SVG")).toString();
    assert.match(svg, /^<svg[^>]*viewBox="0 0 \d+ \d+"/);
    assert.ok(svg.includes(">attention<") && svg.includes(">logits<"));
    assert.ok(!svg.includes("var(--"), "colours are written out");
    const png = await get("PNG");
    assert.equal(png.subarray(1, 4).toString(), "PNG");
    assert.ok(png.length > 10_000);
  });
  test("Ctrl-S writes the file, and a change by somebody else is told", async () => {
    await page.click(".cm-content");
    await page.keyboard.press("Control+Home");
    await page.keyboard.type("# mine\n");
    await page.keyboard.press("Control+s");
    // It is said below the view, of which it covers nothing.
    await page.waitForFunction(
      () => {
        const said = document.querySelector(".banner");
        return (
          said?.textContent.includes("Saved mine.scheme") &&
          said.getBoundingClientRect().top >= document.querySelector("#view").getBoundingClientRect().bottom - 1
        );
      },
      null,
      { timeout: 30_000 },
    );
    await saved(page, "mine.scheme");
    assert.equal(readFileSync(join(studio.folder, "mine.scheme"), "utf8"), await text_of());
    await page.keyboard.type("# more\n");
    writeFileSync(join(studio.folder, "mine.scheme"), "# by somebody else\n");
    await page.keyboard.press("Control+s");
    await wait_text(".banner", "changed by somebody else");
    assert.equal(readFileSync(join(studio.folder, "mine.scheme"), "utf8"), "# by somebody else\n");
  });
});

describe("functors and the stack", () => {
  before(async () => {
    page = await fresh();
  });
  after(async () => {
    await page.context().close();
    assert.deepEqual(page.mistakes, []);
  });

  test("a functor dragged into the stack changes law, peak and seconds", async () => {
    await settled();
    const was = await page.evaluate(() => window.__studio.results.plan.value.peak_bytes);
    await page.locator(".palette li:has-text('checkpoint')").first().dragTo(page.locator("ol.chips"));
    await page.waitForSelector(".chip:has-text('checkpoint')");
    await page.waitForFunction((b) => window.__studio.results.plan.value.peak_bytes < b, was, { timeout: 30_000 });
    assert.match(await page.locator(".facts[role=status]").textContent(), /legal.*exact.*peak.*GiB.*step/s);
  });
  test("several settings are set at once, and what is none is said", async () => {
    const field = page.locator("input.setter");
    await field.fill("layers=6 heads=6, nonsense foo=3");
    await field.press("Enter");
    await page.waitForSelector("#set-mistake", { timeout: 30_000 });
    assert.match(await page.locator("#set-mistake").textContent(), /'nonsense' is no setting.*no axis or number 'foo'/);
    assert.deepEqual(await page.evaluate(() => ({ ...window.__studio.settings.sets })), { layers: "6", heads: "6" });
    assert.equal(await field.inputValue(), "nonsense foo=3");
    await page.getByRole("button", { name: "Leave it out" }).click();
    for (const said of ["layers=6", "heads=6"]) await page.getByRole("button", { name: `Take ${said} back` }).click();
    await settled();
  });
  test("a refusal is one sentence", async () => {
    await page.click("button[aria-label='Change parameters of checkpoint']");
    await page.keyboard.type("every=90");
    await page.keyboard.press("Enter");
    await wait_text(".refusal", "every=90 is more than the 12 blocks of the chain");
    await page.click("button[aria-label='Change parameters of checkpoint']");
    await page.keyboard.press("Control+a");
    await page.keyboard.type("every=4");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => !document.querySelector(".refusal"), null, { timeout: 30_000 });
  });
  test("the step shows what is made again, where", async () => {
    await page.click("#tab-step");
    await page.waitForSelector("[data-key^='again ']", { timeout: 30_000 });
    await settled();
    assert.match(await page.getByRole("note").filter({ hasText: "made again" }).textContent(), /kept .*made again/s);
    assert.ok((await page.locator(".line.again").count()) > 0);
    assert.ok((await page.locator("[data-key^='∂']").count()) > 3);
    assert.deepEqual(await crossed(), []);
    await page.evaluate(() => window.__studio.settings.set_stack(""));
    await settled();
    await page.waitForFunction(() => document.querySelectorAll("[data-key^='again ']").length === 1);
    await settled();
    assert.deepEqual(await crossed(), []);
    await page.evaluate(() => window.__studio.settings.set_stack("checkpoint(4)"));
    await settled();
  });
  test("memory states stand above the chart, and scrubbing tells who is alive", async () => {
    await page.click("#tab-memory");
    await page.waitForSelector("svg[role=slider]", { timeout: 30_000 });
    await page.waitForSelector(".product", { timeout: 30_000 });
    const slider = page.locator("svg[role=slider]");
    await slider.focus();
    await page.keyboard.press("Home");
    const first = await slider.getAttribute("aria-valuetext");
    await page.keyboard.press("Shift+ArrowRight");
    const later = await slider.getAttribute("aria-valuetext");
    assert.notEqual(first, later);
    assert.match(await page.locator(".memory table").textContent(), /wte\.weight.*optimizer:adamw/s);
  });
  test("a rule lights up what it matches, with the count", async () => {
    await page.evaluate(() => {
      window.__studio.settings.set_stack("");
    });
    await page.locator(".palette .name", { hasText: /lora$/ }).first().click();
    await page.waitForSelector(".rule");
    await wait_text(".count", "matches 48 here");
    await settled();
    await page.locator(".rule", { hasText: "linear(x, W)" }).hover();
    await page.waitForSelector(".arrow.lit");
    assert.equal(await page.locator(".arrow.lit").getAttribute("data-item"), "block^");
  });
  test("an arrow within a text of a rule is none of the rule's", async () => {
    await page
      .locator(".palette .name", { hasText: /^\s*~?\s*dora$/ })
      .first()
      .click();
    await page.locator(".rule", { hasText: "or,ri->oi" }).locator("svg", { hasText: "sqrt" }).first().waitFor();
  });
  test("before and after, functor by functor, and who said so", async () => {
    await page.evaluate(() => {
      window.__studio.settings.set_stack("bf16 | checkpoint(block)");
    });
    await page.click("#tab-compare");
    await page.waitForSelector(".fate table tr", { timeout: 30_000 });
    await page.click(".steps button:has-text('bf16')");
    await wait_text(".fate", "bf16");
    await page.waitForFunction(
      () =>
        /\d+ changed/.test(document.querySelector(".steps").textContent) &&
        !/^0 new, 0 gone, 0 changed/.test(document.querySelector(".steps span:last-child").textContent),
      null,
      { timeout: 30_000 },
    );
    await page.evaluate(() => window.__studio.view.select({ kind: "object", source: "block[0].qkv" }));
    await wait_text(".fate", "bf16");
    assert.match(await page.locator(".fate").textContent(), /f32\[.*→.*bf16\[/s);
  });
});

test("what was looked at is there after a reload, and a second tab sees what the first saved", async () => {
  const p = await fresh();
  await own_model(p, studio, "shared.scheme");
  await p.click('.arrow [data-key="block^"]');
  await p.keyboard.press("Enter");
  await p.waitForSelector('.frame [data-key="block^"]');
  await p.reload();
  await p.waitForSelector('.frame [data-key="block^"]', { timeout: 30_000 });
  assert.equal(await p.evaluate(() => window.__studio.project.active), "shared.scheme");
  const other = await p.context().newPage();
  await other.goto(studio.address);
  await other.waitForFunction(() => window.__studio?.project.text?.path === "shared.scheme", null, { timeout: 30_000 });
  await p.click(".cm-content");
  await p.keyboard.press("Control+Home");
  await p.keyboard.type("# from the first tab\n");
  await p.keyboard.press("Control+s");
  await other.waitForFunction(() => window.__studio.project.text.text.startsWith("# from the first tab"), null, {
    timeout: 30_000,
  });
  // What the other tab draws is of the new text, too.
  const layers = await other.locator('[data-item="block^"] .power').first().textContent();
  assert.equal(layers, "4");
  const text = await text_of(p);
  writeFileSync(join(studio.folder, "shared.scheme"), text.replace("preset char: layers=4", "preset char: layers=3"));
  for (const tab of [p, other])
    await tab.waitForFunction(() => document.querySelector('[data-item="block^"] .power')?.textContent === "3", null, {
      timeout: 30_000,
    });
  await p.context().close();
});

test("a server that is gone is told, and what was typed is there when it is started again", async () => {
  const first = await start_studio({ port: await free_port() });
  const p = await fresh_page(browser, first);
  const was = await own_model(p, first, "kept.scheme");
  first.child.kill("SIGKILL");
  await wait_text(".banner", "does not answer", p);
  await p.click(".cm-content");
  await p.keyboard.press("Control+Home");
  await p.keyboard.type("# typed while nobody answered\n");
  assert.equal(await text_of(p), `# typed while nobody answered\n${was}`);
  assert.ok((await p.locator(".arrow").count()) > 0);
  const kept = (t) =>
    Object.entries(localStorage).some(
      ([key, draft]) => /draft:.*kept\.scheme$/.test(key) && JSON.parse(draft).text === t,
    );
  await p.waitForFunction(kept, `# typed while nobody answered\n${was}`, { timeout: 30_000 });
  // At the same port, with another token: what was typed is in the browser.
  const again = await start_studio({ folder: first.folder, port: new URL(first.address).port });
  p.on("dialog", (d) => void d.accept());
  await keep_messages(p);
  await p.goto(again.address);
  await p.waitForFunction((t) => window.__studio?.project.text?.text === t, `# typed while nobody answered\n${was}`, {
    timeout: 30_000,
  });
  await was_said(p, "not saved in kept.scheme is here again");
  assert.equal(readFileSync(join(first.folder, "kept.scheme"), "utf8"), was);
  await p.keyboard.press("Control+s");
  await was_said(p, "Saved kept.scheme");
  await saved(p, "kept.scheme");
  assert.equal(readFileSync(join(first.folder, "kept.scheme"), "utf8"), `# typed while nobody answered\n${was}`);
  await p.context().close();
});
