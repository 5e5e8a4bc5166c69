// Changing a text and a drawing side by side: who has the keyboard, which call is meant, and what is kept while the server answers.
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { transformWithEsbuild } from "vite";
import { start_browser, start_studio } from "./browser.mjs";
import { frames, fresh, key, own_model, settled, text_of, wait_for_text, wait_text } from "./look.mjs";

let studio, browser, page;
const on_disk = (path) => readFileSync(join(studio.folder, path), "utf8");
const write = (path, text) => writeFileSync(join(studio.folder, path), text);
const message = () => page.evaluate(() => window.__studio.project.message?.text ?? "");
const has_keyboard = (wanted, p = page) =>
  p
    .waitForFunction((k) => document.activeElement?.dataset?.key === k, wanted, { timeout: 10_000 })
    .catch(async () => assert.equal(await p.evaluate(() => document.activeElement?.outerHTML.slice(0, 120)), wanted));
// A model of the folder, opened, with its boxes open to see their calls.
async function open_text(name, text, boxes = []) {
  write(name, text);
  await page.evaluate((n) => window.__studio.open_model(n), name);
  await page.waitForFunction((n) => window.__studio.project.active === n, name, { timeout: 30_000 });
  await settled(page);
  assert.equal(await page.evaluate(() => window.__studio.results.forward.mistake?.message ?? ""), "");
  for (const box of boxes) {
    await page.waitForSelector(key(box));
    await page.evaluate((b) => window.__studio.view.toggle(b, true), box);
  }
  await frames(page);
  await page.click("button[aria-label^='Fit']");
}
const menu_of = (k, p = page) => p.locator(key(k)).first().dispatchEvent("contextmenu", { clientX: 500, clientY: 300 });

before(async () => {
  studio = await start_studio();
  browser = await start_browser();
  page = await fresh(browser, studio);
  page.on("dialog", (d) => void d.accept());
});
after(async () => {
  await browser?.close();
  await studio?.stop();
});

describe("the keyboard", () => {
  let was;
  before(async () => {
    was = await own_model(page, studio, "keys.scheme");
    await page.evaluate(() => window.__studio.view.toggle("block^", true));
    await page.waitForSelector(key("block[0].gelu#1"));
    await page.click("button[aria-label^='Fit']");
  });
  test("goes to the text that is clicked while a menu is open, and stays there", async () => {
    await menu_of("block[0].gelu#1");
    await page.waitForSelector("[role=menu]");
    await page.click(".cm-content .cm-line >> nth=0");
    await page.waitForSelector("[role=menu]", { state: "detached" });
    await frames(page, 5);
    await page.keyboard.press("Control+Home");
    await page.keyboard.type("# irbsfpc");
    await page.keyboard.press("Backspace");
    await page.keyboard.press("Enter");
    await wait_for_text(page, `# irbsfp\n${was}`);
    assert.equal(await page.locator(".menu").count(), 0);
    await page.evaluate(() => window.__studio.project.reload("keys.scheme"));
    await wait_for_text(page, was);
  });
  test("goes back from a menu to what the menu was of, also to one that a box has for itself", async () => {
    await page.evaluate(() => (window.__studio.view.weights = true));
    const given = await page.locator("[data-key^='o:block[0]/']").first().getAttribute("data-key");
    for (const k of ["block[0].gelu#1", given]) {
      await menu_of(k);
      await page.waitForSelector("[role=menu]");
      await page.keyboard.press("Escape");
      await has_keyboard(k);
    }
    await page.evaluate(() => (window.__studio.view.weights = false));
  });
  test("leaves a menu by Tab, and the menu with it", async () => {
    await menu_of("block[0].gelu#1");
    await page.waitForSelector("[role=menu]");
    while (await page.evaluate(() => document.activeElement.closest(".menu") !== null))
      await page.keyboard.press("Tab");
    await page.waitForSelector("[role=menu]", { state: "detached" });
    await frames(page, 5);
    assert.equal(await page.evaluate(() => document.activeElement.closest("svg")), null);
  });
  test("leaves the text by Escape and Tab, which the text says", async () => {
    await page.click(".cm-content");
    assert.match(await page.locator(".cm-content").getAttribute("aria-description"), /Escape/);
    await page.keyboard.press("Escape");
    await page.keyboard.press("Tab");
    await page.waitForFunction(() => !document.activeElement.closest(".cm-content"));
    assert.equal(await text_of(page), was);
  });
  test("reaches each arrow of a call by the menu of the call", async () => {
    await page.evaluate(() => window.__studio.view.toggle("block^", true));
    await page.waitForSelector(key("block[0].add#1"));
    await menu_of("block[0].add#1");
    const entries = await page.getByRole("menuitem", { name: /^Insert an op before it/ }).allTextContents();
    assert.equal(entries.length, 2, entries.join());
    await page
      .getByRole("menuitem", { name: /^Insert an op before it/ })
      .nth(1)
      .click();
    await page.keyboard.type("tanh");
    await page.keyboard.press("Enter");
    const line = was.split("\n").find((l) => /^ {2}x = x \+ /.test(l));
    await wait_for_text(page, was.replace(line, line.replace(/x \+ (.*)$/, "x + tanh($1)")));
    await page.evaluate(() => window.__studio.project.reload("keys.scheme"));
    await wait_for_text(page, was);
  });
  test("goes to the name of a copy after an edit of a library's text", async () => {
    await page.evaluate(() => window.__studio.open_model("char"));
    await page.waitForFunction(() => window.__studio.project.active === "char");
    await settled(page);
    await page.waitForSelector(key("block[0].gelu#1"));
    await page.locator(key("block[0].gelu#1")).focus();
    await page.keyboard.press("i");
    await page.keyboard.type("tanh");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".offer input");
    await frames(page, 5);
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Name of the copy");
    await page.getByRole("button", { name: "Not now" }).click();
  });
});

describe("the box that is meant", () => {
  const text = `axes hidden=8 context=16 vocab=65

g t[batch, seq, hidden]:
  y = linear(gelu(t), hidden)

a t[batch, seq, hidden]:
  y = tanh(g(t))

b t[batch, seq, hidden]:
  y = tanh(g(g(t)))

c t[batch, seq, hidden]:
  y = g(t) when hidden == 9 else g(g(t))

model tokens[batch, seq], targets[batch, seq]:
  x = embed(tokens, vocab, name=wte)
  x = a(x)
  x = b(x, name=two)
  x = c(x)
  logits = linear(x, vocab, bias=no, weight=wte, name=readout)
  loss = cross_entropy(logits, targets)
`;
  const choose = async (box, entry, typed) => {
    await menu_of(box);
    await page.getByRole("menuitem", { name: entry }).first().click();
    if (!typed) return;
    await page.locator(".menu input").fill(typed);
    await page.keyboard.press("Enter");
  };
  const again = async () => {
    await page.evaluate(() => window.__studio.project.reload("boxes.scheme"));
    await wait_for_text(page, text);
    await settled(page);
    await page.waitForSelector(key("two.g#2"));
  };
  before(async () => {
    await page.evaluate(() => window.__studio.view.select(null));
    await open_text("boxes.scheme", text, ["a", "two", "c"]);
    await page.waitForSelector(key("two.g#2"));
  });
  test("is the one in the box that a named call calls", async () => {
    await choose("two.g#2", "Repeat…", "3");
    await wait_for_text(page, text.replace("tanh(g(g(t)))", "tanh(g^3(g(t)))"));
    await again();
    // The call that is left keeps the name that its weights have.
    await choose("two.g", "Delete");
    await wait_for_text(page, text.replace("tanh(g(g(t)))", 'tanh(g(t, name="g#2"))'));
    await again();
    await choose("a.g", "Delete");
    await wait_for_text(page, text.replace("tanh(g(t))", "tanh(t)"));
    await again();
    await choose("two", "Dissolve");
    await page.waitForFunction(() => !window.__studio.project.text.text.includes("b(x, name=two)"));
    assert.match(await text_of(page), /^ {2}x = a\(x\)\n {2}\S+ = tanh\(g\(g\(x\)\)\)$|^ {2}x = tanh\(g\(g\(x/m);
    await again();
  });
  test("is the one on which an op is dropped, and where none can be meant it is said", async () => {
    const drop = (k) =>
      page
        .locator(k)
        .first()
        .evaluate((on) => {
          const dataTransfer = new DataTransfer();
          dataTransfer.setData("text/x-op", "gelu");
          on.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
        });
    await drop(`.arrow ${key("two.g#2")}`);
    await wait_for_text(page, text.replace("tanh(g(g(t)))", "tanh(gelu(g(g(t))))"));
    await again();
    await drop(key("o:tokens"));
    await wait_for_text(page, text.replace("embed(tokens,", "embed(gelu(tokens),"));
    await again();
    await drop(`.frame ${key("two")}`);
    await wait_text(page, ".banner", "Drop an op on a line");
    assert.equal(await text_of(page), text);
  });
  test("is not guessed where a condition of the text decides", async () => {
    await page.waitForSelector(key("c.g#2"));
    await choose("c.g#2", "Delete");
    await wait_text(page, ".banner", "A condition of the text decides");
    assert.equal(await text_of(page), text);
  });
});

describe("a drawing", () => {
  before(async () => {
    await page.evaluate(() => window.__studio.open_model("gpt2"));
    await page.waitForFunction(() => window.__studio.project.active === "gpt2");
    await settled(page);
    await page.evaluate(() => window.__studio.view.toggle("block^", true));
    await page.waitForSelector(key("block[0].gelu#1"));
    await page.click("button[aria-label^='Fit']");
    await page.waitForSelector(".tool");
  });
  test("is saved without the buttons that one opens and closes it by", async () => {
    const saved = page.waitForEvent("download");
    await page.getByRole("button", { name: "SVG" }).click();
    const svg = readFileSync(await (await saved).path(), "utf8");
    assert.match(svg, />block</);
    assert.doesNotMatch(svg, /\(Enter\)/);
    assert.equal(
      await page.evaluate(
        (t) => new DOMParser().parseFromString(t, "image/svg+xml").querySelectorAll("title").length,
        svg,
      ),
      0,
    );
  });
  test("says that it is too large for a PNG, whichever way the browser refuses it", async () => {
    for (const refuse of [
      () => {
        HTMLImageElement.prototype.decode = () => Promise.reject(new Error("too large"));
      },
      () => {
        HTMLImageElement.prototype.decode = () => Promise.resolve();
        CanvasRenderingContext2D.prototype.drawImage = () => {};
        HTMLCanvasElement.prototype.toBlob = (done) => done(null);
      },
    ]) {
      await page.evaluate(() => (window.__studio.project.message = null));
      await page.evaluate(refuse);
      await page.getByRole("button", { name: "PNG" }).click();
      await wait_text(page, ".banner", "save it as SVG");
    }
  });
  test("that cannot be arranged says so", async () => {
    await page.evaluate(() => {
      window.__post = Worker.prototype.postMessage;
      Worker.prototype.postMessage = () => {
        throw new Error("no worker");
      };
    });
    await page.evaluate(() => window.__studio.view.toggle("block[0].gelu#1", true));
    await wait_text(page, ".banner", "no worker");
    await page.evaluate(() => {
      Worker.prototype.postMessage = window.__post;
      window.__studio.view.toggle("block[0].gelu#1", false);
      window.__studio.view.toggle("block[0].gelu#1", true);
    });
    await page.waitForSelector(`.frame ${key("block[0].gelu#1")}`);
    await page.evaluate(() => window.__studio.view.toggle("block[0].gelu#1", false));
  });
});

test("numbers are rounded before their unit is chosen", async () => {
  const { code } = await transformWithEsbuild(
    readFileSync(new URL("../src/state/format.ts", import.meta.url), "utf8"),
    "format.ts",
  );
  const { bytes, count, seconds } = await import(`data:text/javascript,${encodeURIComponent(code)}`);
  const written = (f, all) => {
    for (const [n, text] of all) assert.equal(f(n), text);
  };
  written(count, [
    [999, "999"],
    [1936, "1.94 k"],
    [999_499, "999 k"],
    [999_600, "1.00 M"],
    [4.4e18, "4.40 E"],
  ]);
  written(seconds, [
    [0, "0.00 µs"],
    [0.9994, "999 ms"],
    [0.9996, "1.00 s"],
    [70496, "19.6 h"],
    [9.996e-4, "1.00 ms"],
    [99.96, "100 s"],
    [1234.5, "1235 s"],
  ]);
  written(bytes, [
    [1023, "1023 B"],
    [99.97 * 1024, "100 KiB"],
    [1023.4 * 1024, "1023 KiB"],
    [1023.6 * 1024, "1.0 MiB"],
    [196 * 1024 ** 2, "196 MiB"],
  ]);
});

describe("what is typed", () => {
  let name,
    was,
    number = 0;
  const type = async (text, p = page) => {
    await p.locator(".cm-content").focus();
    await p.keyboard.press("Control+Home");
    await p.keyboard.type(text);
  };
  // The server's answers to a question are held back until they are let through; `first`: only the first one.
  async function held(pattern, { method = "GET", first = false } = {}) {
    let open, came, went, seen;
    const gate = new Promise((done) => (open = done)),
      arrived = new Promise((done) => (came = done)),
      gone = new Promise((done) => (went = done));
    const handler = async (route) => {
      if (route.request().method() !== method || (first && seen)) return route.fallback();
      seen = true;
      const response = await route.fetch();
      came();
      await gate;
      await route.fulfill({ response });
      went();
    };
    await page.route(pattern, handler);
    return {
      arrived,
      open: async () => {
        open();
        await gone;
        await page.unroute(pattern, handler);
      },
    };
  }
  const undone = async () => {
    for (let i = 0; i < 9; i++) await page.keyboard.press("Control+z");
  };
  before(async () => {
    await page.evaluate(() => {
      for (const k of Object.keys(window.__studio.view.opened)) window.__studio.view.toggle(k, false);
    });
  });
  const open_new = async () => {
    name = `typed_${++number}.scheme`;
    was = await own_model(page, studio, name);
  };

  test("while a file is renamed stays, and so does its undo", async () => {
    await open_new();
    const to = `renamed_${number}.scheme`;
    await type("# before\n");
    const answer = await held("**/api/rename", { method: "POST" });
    await page.getByRole("button", { name: `Rename or delete ${name}`, exact: true }).click();
    await page.getByLabel(`Another name of ${name}`).fill(to);
    await page.keyboard.press("Enter");
    await answer.arrived;
    await type("# meanwhile\n");
    // The folder says that the old file is gone before the answer is there.
    await page.waitForFunction((n) => window.__studio.project.files.every((f) => f.path !== n), name, {
      timeout: 30_000,
    });
    await answer.open();
    await page.waitForFunction((n) => window.__studio.settings.model === `${n}:char`, to);
    await wait_for_text(page, `# meanwhile\n# before\n${was}`);
    assert.equal(on_disk(to), `# before\n${was}`);
    assert.ok(!existsSync(join(studio.folder, name)));
    assert.equal(await page.evaluate(() => window.__studio.project.active), to);
    await page.locator(".cm-content").focus();
    await undone();
    await wait_for_text(page, was);
    await page.keyboard.press("Control+s");
    await wait_text(page, ".banner", `Saved ${to}`);
    assert.equal(on_disk(to), was);
  });
  test("while it is saved under another name stays, in the new file", async () => {
    await open_new();
    const to = `copied_${number}.scheme`;
    await type("# mine\n");
    write(name, `# by somebody else\n${was}`);
    await page.keyboard.press("Control+s");
    await page.getByRole("button", { name: "Save under another name…" }).click();
    await page.getByLabel("Name of the copy").fill(to);
    const answer = await held("**/api/file", { method: "PUT" });
    await page.keyboard.press("Enter");
    await answer.arrived;
    await type("# meanwhile\n");
    await answer.open();
    await page.waitForFunction((n) => window.__studio.settings.model === `${n}:char`, to);
    await wait_for_text(page, `# meanwhile\n# mine\n${was}`);
    assert.equal(on_disk(to), `# mine\n${was}`);
    await page.waitForFunction((n) => window.__studio.project.find(n), name);
    assert.equal(await page.evaluate((n) => window.__studio.project.find(n).text, name), `# by somebody else\n${was}`);
    await page.locator(".cm-content").focus();
    await undone();
    await wait_for_text(page, was);
  });
  test("is not replaced by what was read before, and the list of files is the last one", async () => {
    await open_new();
    const text = await held(`**/api/file?path=${name}`, { first: true });
    write(name, `# first\n${was}`);
    await text.arrived;
    write(name, `# second\n${was}`);
    await wait_for_text(page, `# second\n${was}`);
    const again = page.waitForResponse((r) => r.url().includes(`path=${name}`));
    await text.open();
    await again;
    await frames(page, 5);
    assert.equal(await text_of(page), `# second\n${was}`);

    const list = await held("**/api/files", { first: true });
    const early = page.evaluate(() => window.__studio.project.refresh_files());
    await list.arrived;
    write(`late_${number}.scheme`, was);
    const there = () =>
      page.waitForFunction((n) => window.__studio.project.files.some((f) => f.path === n), `late_${number}.scheme`);
    await page.evaluate(() => window.__studio.project.refresh_files());
    await there();
    await list.open();
    await early;
    assert.ok(
      await page.evaluate((n) => window.__studio.project.files.some((f) => f.path === n), `late_${number}.scheme`),
    );
  });
  test("is kept for each tab, whatever another one does with the same text", async () => {
    const path = `tabs_${++number}.scheme`;
    const text = await own_model(page, studio, path);
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
    const visit = async () => {
      const p = await context.newPage();
      await p.goto(studio.address);
      await p.waitForFunction(() => window.__studio?.results.forward.value && window.__studio.results.presets);
      return p;
    };
    const open = async (p) => {
      await p.evaluate((n) => window.__studio.open_model(`${n}:char`), path);
      await p.waitForFunction((n) => window.__studio.project.active === n, path);
    };
    const drafts = (p) =>
      p.evaluate(() =>
        Object.keys(localStorage)
          .filter((k) => k.includes(":draft:"))
          .map((k) => JSON.parse(localStorage[k]).text)
          .sort(),
      );
    const kept = (p, all) =>
      p
        .waitForFunction(
          (wanted) =>
            Object.keys(localStorage)
              .filter((k) => k.includes(":draft:"))
              .map((k) => JSON.parse(localStorage[k]).text)
              .sort()
              .join("|") === wanted,
          all.sort().join("|"),
        )
        .catch(async () => assert.deepEqual(await drafts(p), all.sort()));
    const a = await visit();
    await open(a);
    await type("# a\n", a);
    await kept(a, [`# a\n${text}`]);
    const b = await visit();
    await open(b);
    assert.equal(await text_of(b), text);
    await type("# b\n", b);
    await kept(b, [`# a\n${text}`, `# b\n${text}`]);
    await b.evaluate((n) => window.__studio.project.reload(n), path);
    await kept(b, [`# a\n${text}`]);
    await type("# c\n", b);
    await kept(b, [`# a\n${text}`, `# c\n${text}`]);
    await a.close({ runBeforeUnload: false });
    await b.close({ runBeforeUnload: false });
    const c = await visit();
    await wait_text(c, ".banner", "is here again");
    const here = await c.evaluate(() => window.__studio.project.dirty.map((t) => [t.path, t.text]));
    assert.deepEqual(here.sort(), [
      [path, `# c\n${text}`],
      [path.replace(".", "_2."), `# a\n${text}`],
    ]);
    await kept(c, [`# a\n${text}`, `# c\n${text}`]);
    await c.reload();
    await wait_text(c, ".banner", "is here again");
    await c.evaluate(() => {
      Storage.prototype.setItem = () => {
        throw new DOMException("full", "QuotaExceededError");
      };
    });
    await open(c);
    await type("# d\n", c);
    await wait_text(c, ".banner", "store is full");
    await context.close();
  });
  after(() => assert.deepEqual(page.mistakes, []));
});

test("a functor's parameters are read in the list, and those that are typed stay while files are read again", async () => {
  const law = (n) => `functor mine(rate = ${n}, keep = 3):\n  law exact\n  object activation -> kept\n`;
  const [path, params] = await page.evaluate(() => {
    const f = window.__studio.results.functors.find((g) => !g.default && g.params.some((p) => p.default !== null));
    return [f.name, f.params.map((p) => (p.default === null ? p.name : `${p.name}=${p.default}`)).join(", ")];
  });
  const line = page.locator(".palette li", { has: page.getByLabel(`Add ${path} to the stack`) });
  assert.equal(await line.locator(".params").textContent(), params);
  write("mine.functor", law(1));
  await page.locator(".palette .params", { hasText: "rate=1, keep=3" }).waitFor();
  await page.locator(".palette .name", { hasText: "mine.functor" }).click();
  const field = page.getByLabel("Parameters of mine.functor");
  await field.fill("rate=7");
  write("mine.functor", law(2));
  await page.locator(".palette .params", { hasText: "rate=2, keep=3" }).waitFor();
  await frames(page);
  assert.equal(await field.inputValue(), "rate=7");
  await page
    .locator(".palette .name", { hasText: new RegExp(`${path}$`) })
    .first()
    .click();
  assert.notEqual(await page.getByLabel(`Parameters of ${path}`).inputValue(), "rate=7");
});
