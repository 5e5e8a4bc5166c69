// Random edits made in the drawing, with the menus that a person opens: EDITS of them (500 in `make test-long`), from SEED. Every text
// of models/ is opened with remarks behind its lines; after an edit every byte outside of what was meant is as it was, remarks
// included, and undo gives the text back byte for byte.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { close_all, open_page, start_browser, start_studio } from "./browser.mjs";
import { ask, fit, settled, text_of, wait_for_text } from "./look.mjs";

const wanted = Number(process.env.EDITS ?? 16),
  root = join(dirname(fileURLToPath(import.meta.url)), "../.."),
  models = join(root, "models");
let seed = Number(process.env.SEED ?? 1);
const draw = (n) => {
  seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
  return Math.floor(((seed >>> 8) / 16777216) * n);
};
const pick = (all) => all[draw(all.length)];
let studio,
  browser,
  page,
  number = 0,
  asked = 0;
const counts = {};

// A remark behind every statement, so that a lost or moved one shows.
function remarked(text) {
  let n = 0;
  return text
    .split("\n")
    .map((line) => (/^  \S.*\)$/.test(line) && !line.includes("#") ? `${line}  # remark ${++n}` : line))
    .join("\n");
}
// (The sign within a path, norm#2, begins none.)
const remarks = (text) => [...text.matchAll(/(?<=^|\s)#.*$/gm)].map((m) => m[0]);
const words = (line) => new Set(line.match(/\w+/g) ?? []);
function common(a, b) {
  const head = common_head(a, b);
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  return { gone: a.slice(head, a.length - tail), come: b.slice(head, b.length - tail) };
}
// What differs, with the words at its ends whole: of part_11 and part_118 the difference is not an 8.
function whole_words(a, b) {
  const { gone, come } = common(a, b),
    head = common_head(a, b),
    tail = a.length - head - gone.length;
  const before = /\w*$/.exec(a.slice(0, head))[0],
    behind = /^\w*/.exec(a.slice(a.length - tail))[0];
  return `${before}${gone}${behind} ${before}${come}${behind}`;
}
function common_head(a, b) {
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  return head;
}

// What may be asked of a menu, what is typed, and what must hold of the text before and after. Each name that is typed is new.
const kinds = {
  insert: {
    entry: /^Insert an op/,
    typed: () => `scale(1.${String(1000 + number).slice(1)}5)`,
    holds(was, now, typed) {
      const constant = /\((.*)\)/.exec(typed)[1],
        at = now.indexOf(constant),
        close = now.indexOf(")", at);
      assert.ok(at > 0, "the call is in the text");
      // Taking the call off again gives the text before, at one of the places where it may begin.
      const without = now.slice(0, at).replace(/,\s*$/, "") + now.slice(close + 1),
        places = [...without.matchAll(/scale\(/g)].map((m) => m.index);
      assert.ok(
        places.some((p) => without.slice(0, p) + without.slice(p + 6) === was),
        `more than the call was inserted:\n${JSON.stringify(common(was, now))}`,
      );
    },
  },
  rename: {
    entry: /^Rename/,
    typed: () => `name_${number}`,
    holds(was, now, typed) {
      const { gone } = common(was, now),
        again = now.replaceAll(new RegExp(`\\b${typed}\\b`, "g"), "\u0000"),
        pieces = again.split("\u0000");
      assert.ok(pieces.length > 1, "the name is in the text");
      // Between the places of the new name the text is as it was, and at each place stood the same old name.
      let at = 0,
        old = null;
      for (const [i, piece] of pieces.entries()) {
        const next = was.indexOf(piece, at);
        if (i === 0) assert.equal(next, 0, gone);
        else {
          const name = was.slice(at, next);
          assert.match(name, /^[\w#]+$/, `not a name: ${name}`);
          old ??= name;
          assert.equal(name, old);
        }
        at = next + piece.length;
      }
      assert.equal(at, was.length);
    },
  },
  delete: {
    entry: /^Delete/,
    holds(was, now) {
      const { gone } = common(was, now);
      // Words that are left were there, in this order, but for names by which calls keep their weights; a remark goes only with its line.
      let i = 0;
      for (const word of without_new_names(was, now).match(/\w+/g) ?? []) {
        const all = was.slice(i).search(new RegExp(`\\b${word}\\b`));
        if (all < 0)
          assert.fail(`'${word}' was not in the text behind what stays of ${JSON.stringify(gone.slice(0, 200))}`);
        i += all;
      }
      const left = remarks(now),
        had = remarks(was);
      assert.deepEqual(
        had.filter((r) => left.includes(r)),
        left,
      );
      assert.ok(
        had.length - left.length <= was.split("\n").length - now.split("\n").length,
        "a remark went without its line",
      );
    },
  },
  connect: {
    entry: /^Read another value/,
    typed: async () =>
      pick(
        await page.evaluate(() => [
          ...new Set(window.__studio.results.forward.value.scheme.objects.map((o) => o.name).filter((n) => n)),
        ]),
      ),
    holds: one_line,
  },
  size: {
    entry: /^Change the size/,
    typed: async () => String(2 * Number((await page.locator(".menu input").inputValue()) || 8)),
    holds(was, now) {
      const { gone, come } = common(was, now);
      assert.match(gone + come, /^[\w\s*/+^().=]*$/);
      one_line(was, now);
    },
  },
  repeat: {
    entry: /^Repeat/,
    typed: () => String(2 + draw(3)),
    holds(was, now) {
      const { gone, come } = common(was, now);
      assert.match(gone + come, /^\^?\w*$/);
      one_line(was, now);
    },
  },
  fold: {
    entry: /^Fold/,
    typed: () => `part_${number}`,
    holds(was, now) {
      same_remarks(was, now);
      kept_lines(was, now);
    },
  },
  dissolve: {
    entry: /^Dissolve/,
    holds(was, now) {
      kept_lines(was, now);
    },
  },
};
// Without the names that an edit wrote: name="layer_norm#2".
function without_new_names(was, now) {
  const said = /, name="\w+#\d+"/g,
    old = was.match(said) ?? [];
  return now.replace(said, (name) => {
    const i = old.indexOf(name);
    if (i >= 0) old.splice(i, 1);
    return i >= 0 ? name : "";
  });
}
const weights = () =>
  page.evaluate(() =>
    window.__studio.results.forward.value.scheme.objects.filter((o) => o.role === "parameter").map((o) => o.source),
  );
function one_line(was, now) {
  const a = was.split("\n"),
    b = now.split("\n");
  assert.equal(a.length, b.length);
  assert.ok(a.filter((l, i) => l !== b[i]).length <= 1, "one line is changed");
  same_remarks(was, now);
}
function same_remarks(was, now) {
  assert.deepEqual(remarks(now).sort(), remarks(was).sort());
}
// Lines that have nothing to do with the edit are there, in their order. (Those of a box that was dissolved move, and names of theirs may change.)
function kept_lines(was, now) {
  const changed = words(whole_words(was, now)),
    left = now.split("\n");
  let at = -1;
  for (const line of was.split("\n")) {
    if (line.trim() === "" || [...words(line)].some((w) => changed.has(w))) continue;
    at = left.indexOf(line, at + 1);
    assert.ok(at >= 0, `this line is gone: ${line}`);
  }
}

async function open(file, preset) {
  await page.evaluate((m) => window.__studio.open_model(m), `${file}:${preset}`);
  await page.waitForFunction((f) => window.__studio.project.active === f, file, { timeout: 30_000 });
  await settled(page);
  assert.equal(await page.evaluate(() => window.__studio.results.forward.mistake?.message ?? ""), "", file);
  // All boxes are open and every repetition shows its first.
  for (let i = 0; i < 3; i++) {
    const closed = await page.evaluate(() =>
      [...document.querySelectorAll(".arrow.box [data-key], .arrow.repeat [data-key]")].map((e) => e.dataset.key),
    );
    if (closed.length === 0) break;
    await page.evaluate((keys) => {
      for (const k of keys) window.__studio.view.toggle(k, true);
    }, closed);
    await page.waitForFunction(
      (keys) => !keys.some((k) => document.querySelector(`.arrow [data-key="${CSS.escape(k)}"]`)),
      closed,
      { timeout: 30_000 },
    );
  }
  await fit(page);
}
// A right click on a thing of the drawing, where it is in sight; nothing where it has just been drawn anew.
async function menu_of(key) {
  await page.evaluate((k) => {
    const hit = [...document.querySelectorAll(".diagram [data-key]")].find((e) => e.dataset.key === k);
    if (!hit) return;
    hit.focus({ preventScroll: true });
    const box = hit.getBoundingClientRect(),
      area = document.querySelector(".diagram").getBoundingClientRect();
    const clientX = Math.max(area.left + 2, Math.min(area.right - 2, box.left + box.width / 2));
    const clientY = Math.max(area.top + 2, Math.min(area.bottom - 2, box.top + Math.min(box.height / 2, 8)));
    hit.dispatchEvent(new MouseEvent("contextmenu", { clientX, clientY, bubbles: true, cancelable: true }));
  }, key);
  const menu = page.locator("[role=menu]");
  return (await menu.count()) > 0 ? menu : null;
}
// What became of the edit after so many: another text, a refusal in a sentence, or neither.
async function outcome(was, edits) {
  // A question is answered first: do it all the same, or the last of several operands stays.
  for (let questions = 0; questions < 4; questions++) {
    await page
      .waitForFunction((n) => window.__studio.ended.edits > n || document.querySelector(".banner .choice"), edits, {
        timeout: 60_000,
      })
      .catch(() => console.log("an edit did not end within a minute"));
    const choice = page.locator(".banner .choice");
    if ((await choice.count()) === 0) break;
    asked++;
    const question = await page.evaluate(() => window.__studio.project.message?.text);
    await choice.last().click();
    // Behind it may stand another one.
    await page.waitForFunction((q) => window.__studio.project.message?.text !== q, question);
  }
  const answer = await page.evaluate((t) => {
    const { text, message } = window.__studio.project;
    const said = message?.kind === "bad" ? message.text : document.querySelector(".menu .bad")?.textContent;
    return text.text !== t ? "changed" : said || "nothing";
  }, was);
  // What is refused stays where it was typed.
  if (await page.locator(".menu").count()) await page.keyboard.press("Escape");
  return answer;
}
async function undo(was) {
  await page.click(".cm-content");
  await page.keyboard.press("Control+z");
  await wait_for_text(page, was);
  await settled(page);
}

before(async () => {
  studio = await start_studio();
  browser = await start_browser();
  page = await open_page(browser, studio.address, { width: 1600, height: 1000 });
  await page.waitForFunction(
    () => window.__studio?.results.functors.length > 0 && window.__studio.results.presets,
    null,
    { timeout: 30_000 },
  );
});
after(close_all);

// Typed into and taken back, and saved: with the line ends of either kind, or of both, byte for byte.
test("a text that is opened, typed in, undone and saved is the same text", async () => {
  const all = ["models", "functors"].flatMap((folder) =>
    readdirSync(join(root, folder))
      .filter((n) => /\.(scheme|functor)$/.test(n))
      .sort()
      .map((n) => join(root, folder, n)),
  );
  assert.ok(all.length > 30, `${all.length} texts`);
  const ends = [(t) => t, (t) => t.replaceAll("\n", "\r\n"), (t) => t.replace("\n", "\r\n")];
  for (const [i, path] of all.entries()) {
    const text = ends[i % 3](remarked(readFileSync(path, "utf8"))),
      name = basename(path);
    writeFileSync(join(studio.folder, name), text);
    await page.evaluate((f) => window.__studio.project.open_file(f), name);
    await page.waitForFunction((f) => window.__studio.project.active === f, name);
    await page.locator(".cm-content").focus();
    await page.keyboard.press("Control+Home");
    await page.keyboard.type("#");
    await page.waitForFunction(
      () => window.__studio.project.text.text.startsWith("#") && window.__studio.project.dirty.length === 1,
    );
    if (i % 2) {
      await page.evaluate(() => window.__studio.project.save());
      assert.equal(readFileSync(join(studio.folder, name), "utf8"), `#${text}`, name);
    }
    await page.keyboard.press("Control+z");
    await page.evaluate(() => window.__studio.project.save());
    assert.equal(readFileSync(join(studio.folder, name), "utf8"), text, name);
  }
});

test(`${wanted} random edits of the drawing change what was meant, and nothing else`, async () => {
  const presets = (await ask(page, ["models", "--json"])).models;
  const texts = readdirSync(models)
    .filter((n) => n.endsWith(".scheme"))
    .sort()
    .map((name) => {
      const own = presets
        .filter((p) => p.file === name || p.file.endsWith(`/${name}`) || `${p.file}.scheme` === name)
        .sort((a, b) => a.params - b.params);
      return { name, preset: own[0]?.name };
    })
    .filter((t) => t.preset);
  assert.ok(texts.length > 3, JSON.stringify(presets.slice(0, 2)));
  const began = Date.now();
  let tried = 0,
    refused = 0,
    at = draw(texts.length);
  while (number < wanted) {
    const { name, preset } = texts[at++ % texts.length];
    await open(name, preset);
    for (
      let misses = 0, here = 0;
      number < wanted && here < Math.max(2, Math.ceil(wanted / texts.length)) && misses < 30;
    ) {
      await settled(page);
      // In an order that is the same each time, so that SEED gives the same edits.
      const keys = await page.evaluate(() =>
        [...document.querySelectorAll(".diagram [data-key]")].map((e) => e.dataset.key).sort(),
      );
      if (keys.length === 0) break;
      const key = pick(keys),
        menu = await menu_of(key);
      tried++;
      if (!menu) {
        misses++;
        continue;
      }
      const entries = await menu.locator("[role=menuitem]:not(:disabled)").allTextContents();
      const possible = Object.entries(kinds).filter(([, k]) => entries.some((e) => k.entry.test(e)));
      if (possible.length === 0) {
        await page.keyboard.press("Escape");
        misses++;
        continue;
      }
      const [kind, { entry, typed, holds }] = pick(possible),
        was = await text_of(page),
        had = await weights(),
        edits = await page.evaluate(() => window.__studio.ended.edits);
      await page.evaluate(() => {
        window.__studio.project.message = null;
      });
      await menu.locator("[role=menuitem]:not(:disabled)").filter({ hasText: entry }).first().click();
      let say;
      if (typed) {
        await page.waitForSelector(".menu input");
        say = await typed();
        await page.locator(".menu input").fill(say);
        await page.keyboard.press("Enter");
      }
      const answer = await outcome(was, edits);
      const where = `${kind} of ${key} in ${name}${say ? `, '${say}'` : ""} (SEED=${process.env.SEED ?? 1}, edit ${number})`;
      if (answer !== "changed") {
        // The same value again, or a refusal in a sentence, changes nothing.
        const stood = kind === "size" && new RegExp(`=\\s*${say}\\b`).test(was); // an axis that was cut has another size than its setting
        assert.ok(
          answer !== "nothing" || kind === "connect" || kind === "repeat" || stood,
          `${where}: nothing happened`,
        );
        assert.equal(await text_of(page), was, where);
        refused++;
        misses++;
        continue;
      }
      number++;
      here++;
      counts[kind] = (counts[kind] ?? 0) + 1;
      const now = await text_of(page);
      try {
        holds(was, now, say);
      } catch (e) {
        e.message = `${where}: ${e.message}`;
        throw e;
      }
      await settled(page);
      const broken = await page.evaluate(() => window.__studio.results.forward.mistake?.message ?? "");
      // Formats and saves know weights by their paths: those of calls that stay keep theirs.
      if (!broken && (kind === "insert" || kind === "delete")) {
        const has = await weights();
        assert.deepEqual(
          has.filter((w) => !had.includes(w)),
          [],
          `${where}: these weights have new paths`,
        );
        if (kind === "insert") assert.equal(has.length, had.length, where);
      }
      // Edits pile up while the model stays whole; one that does not is taken back, and so is every third.
      if (broken || number % 3 === 0) await undo(was);
    }
    await page.evaluate(async (n) => {
      const s = window.__studio.project;
      await s.reload(n);
    }, name);
  }
  console.log(
    `${number} edits (${Object.entries(counts)
      .map(([k, n]) => `${n} ${k}`)
      .join(
        ", ",
      )}), ${refused} refused, ${asked} asked about, ${tried} menus, ${((Date.now() - began) / 1000).toFixed(0)} s`,
  );
  assert.deepEqual(page.mistakes, []);
});
