// Numbers of the page are those of the command line. Whatever is written with a unit says which entry of which command's answer it is
// (data-json, src/state/asked.ts); here the binary is asked the same words, and every number that is seen is compared with its entry, as
// exactly as it is written. A number that says nothing of where it comes from fails as well, so no list of numbers is kept here.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { close_all, program, start_browser, start_studio } from "./browser.mjs";
import { fresh, set, settled, tab } from "./look.mjs";

let studio, browser, page;
before(async () => {
  studio = await start_studio();
  browser = await start_browser();
  page = await fresh(browser, studio);
});
after(close_all);

const answers = new Map();
function answer(args) {
  const key = JSON.stringify(args);
  if (!answers.has(key)) {
    const said = execFileSync(program, args, {
      cwd: studio.folder,
      maxBuffer: 1 << 29,
      stdio: ["ignore", "pipe", "ignore"],
    });
    answers.set(key, JSON.parse(said));
  }
  return answers.get(key);
}
// All pieces of an object that lies on a mesh together.
function whole_bytes(o) {
  const cut = new Map();
  for (const p of o.placement ?? []) if (p.spread === "sharded" && p.whole) cut.set(p.axis, p.whole);
  return [...cut].reduce((n, [axis, whole]) => (n / o.axes[axis].size) * whole, o.bytes);
}
function entry(value, path) {
  if (path.length === 0) return value;
  const [key, ...rest] = path;
  if (key === "*") return Object.values(value).reduce((n, v) => n + entry(v, rest), 0);
  if (key.startsWith("{"))
    return key
      .slice(1, -1)
      .split(",")
      .filter((k) => k !== "")
      .reduce((n, k) => n + entry(value[k], rest), 0);
  if (key === "whole_bytes") return whole_bytes(value);
  return entry(value[key], rest);
}
function reference(text, asked) {
  const [of, path] = text.split(" /");
  assert.ok(asked[of], `nothing was asked as '${of}'`);
  const value = entry(answer(asked[of]), path.split("/"));
  assert.equal(typeof value, "number", `${text} is ${value}`);
  return value;
}
// References in brackets, joined by + - * / from left to right as JavaScript reads them.
function said_by(json, asked) {
  if (!json.includes("[")) return reference(json, asked);
  const sum = json.replace(/\[([^\]]*)\]/g, (_, r) => `(${reference(r, asked)})`);
  assert.match(sum, /^[\d\s().e+*/-]*$/, sum);
  return Function(`return ${sum}`)();
}

const units = {
  ...{ B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 },
  ...{ µs: 1e-6, ms: 1e-3, s: 1, h: 3600, "%": 1e-2 },
  ...{ k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, "": 1 },
};
// The last number with a unit, or the only one.
function number_in(text) {
  const all = [...text.matchAll(/([+−±-]?)(\d[\d,]*\.?\d*)(?:\s?(B|[KMGT]iB|µs|ms|s|h|%|[kMGTPE])(?![\w]))?/g)];
  const found = all.filter((m) => m[3]).at(-1) ?? all[0];
  if (!found) return null;
  const [, sign, digits, unit = ""] = found,
    scale = units[unit],
    decimals = digits.split(".")[1]?.length ?? 0;
  return {
    value: (sign === "−" || sign === "-" ? -1 : 1) * Number(digits.replaceAll(",", "")) * scale,
    within: 0.5 * 10 ** -decimals * scale,
  };
}

// Numbers of the page with their entries, and numbers with units that have none.
const seen = () =>
  page.evaluate(() => {
    const told = [...document.querySelectorAll("[data-json]")].map((e) => [e.dataset.json, e.textContent.trim()]);
    const unit = /(^|[\s(+−±·])\d[\d.,]*\s?(B|[KMGT]iB|µs|ms|s|h)(?![\w])|\d%/,
      walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT),
      untold = [];
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
      const around = node.parentElement;
      if (around.closest("[data-json], [data-axis], [data-said], .cm-editor, option, code, title, style")) continue;
      if (unit.test(node.textContent)) untold.push(node.textContent.trim());
    }
    return { told, untold, asked: Object.fromEntries(window.__studio.asked) };
  });
async function compare(where) {
  await settled(page);
  const { told, untold, asked } = await seen();
  assert.deepEqual(untold, [], `${where}: these numbers do not say where they come from`);
  let compared = 0;
  for (const [json, text] of told) {
    const shown = number_in(text);
    if (!shown) {
      assert.match(text, /^[—…]?$/, `${where}: '${text}' is no number (${json})`);
      continue;
    }
    const is = said_by(json, asked);
    assert.ok(
      Math.abs(shown.value - is) <= shown.within * (1 + 1e-6) + 1e-15,
      `${where}: '${text}' is shown, and ${json} is ${is}`,
    );
    compared++;
  }
  return compared;
}

const steps = [
  { model: "char", batch: 8, stack: "" },
  { model: "char", batch: 8, stack: "bf16 | checkpoint(every=2) | accumulate(2)", optimizer: "momentum" },
  { model: "llama-tiny", batch: 2, stack: "lora(4) | offload(optimizer)" },
  { model: "char", batch: 8, stack: "data_parallel(2) | zero(3)" },
  { model: "char", batch: 8, stack: "pipeline(2, parts=4)" },
];
for (const { optimizer = "adamw", ...step } of steps)
  test(`every number of ${step.model} with '${step.stack}' and ${optimizer} is the command line's`, async () => {
    await page.evaluate((o) => (window.__studio.settings.optimizer = o), optimizer);
    await set(page, step);
    const of_mesh = /parallel|pipeline/.test(step.stack),
      many = {};
    for (const view of ["model", "step", "memory", "compare", "stack", "ranks"]) {
      await tab(page, view);
      if (view === "stack")
        await page.waitForFunction(() => [...document.querySelectorAll(".cost")].every((c) => c.ariaBusy !== "true"));
      many[view] = await compare(view);
      if (view === "model") {
        await page.evaluate(() => window.__studio.view.select({ kind: "object", source: "block[0].qkv" }));
        await compare("an object that is selected");
        await page.evaluate(() => window.__studio.view.select({ kind: "box", source: "block[0]" }));
        await compare("a box that is selected");
        await page.evaluate(() => window.__studio.view.select(null));
      }
      if (view === "memory") {
        await page.locator("svg[role=slider]").focus();
        for (const key of ["Home", "Shift+ArrowRight", "End"]) {
          await page.keyboard.press(key);
          await compare(`memory after ${key}`);
        }
        await page.keyboard.press("Escape");
      }
      if (view === "ranks" && /pipeline/.test(step.stack))
        for (const i of [0, 5]) {
          await page.locator(".slot").nth(i).click();
          await compare(`slot ${i}`);
        }
    }
    assert.ok(many.model > 5 && many.step > 8 && many.memory > 20 && many.stack > 8, JSON.stringify(many));
    if (of_mesh) assert.ok(many.ranks > 10, JSON.stringify(many));
  });

test("a number that is another one, or comes from nowhere, is found", async () => {
  const peak = page.locator("section.stack [data-json='plan /peak_bytes']");
  await peak.evaluate((e) => (e.textContent = e.textContent.replace(/\d(?=\D*$)/, (d) => (Number(d) + 1) % 10)));
  await assert.rejects(compare("a wrong peak"), /is shown, and plan \/peak_bytes is/);
  await peak.evaluate((e) => delete e.dataset.json);
  await assert.rejects(compare("a peak of nothing"), /do not say where they come from/);
  await page.reload();
  await page.waitForFunction(() => window.__studio?.results.functors.length > 0);
});
test("the optimizer that is chosen in the bar is that of every number, of Verify and of Profile", async () => {
  await set(page, { model: "char", batch: 4 });
  await tab(page, "memory");
  await page.getByLabel("Optimizer", { exact: true }).selectOption("sgd");
  await settled(page);
  const { asked } = await seen();
  for (const of of ["plan", "timeline", "states"])
    assert.equal(asked[of][asked[of].indexOf("--optimizer") + 1], "sgd", of);
  assert.equal(answer(asked.plan).categories.optimizer_state, 0);
  await compare("sgd");
  await tab(page, "runs");
  const words = page.waitForRequest((r) => r.method() === "POST" && r.url().endsWith("api/jobs"));
  await page.locator("section[aria-labelledby=runs-model]").getByRole("button", { name: "Verify" }).click();
  assert.match((await words).postDataJSON().args.join(" "), /^verify .*--optimizer sgd/);
});

// Sums over objects of the drawing would be right for the wrong objects; the plan has these by itself.
test("a step's parameters and states are those that the plan counts", async () => {
  await page.evaluate(() => (window.__studio.settings.optimizer = "adamw"));
  await set(page, { model: "gpt2", batch: 1, stack: "" });
  await tab(page, "step");
  await settled(page);
  const { model_states, trained_params } = answer(["plan", "--model", "gpt2", "--json"]);
  const texts = await page.locator("#view svg text").allTextContents(),
    states = number_in(texts.find((t) => t.startsWith("states ")) ?? "");
  assert.ok(Math.abs(states.value - model_states.optimizer_state) <= states.within, `${states.value}`);
  const shown = number_in(await page.locator(".facts [data-json$='/trained_params']").first().textContent());
  assert.ok(Math.abs(shown.value - trained_params) <= shown.within);
  assert.deepEqual(page.mistakes, []);
});
