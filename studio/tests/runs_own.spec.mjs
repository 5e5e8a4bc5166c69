// What the page asks about a run is about that run: its model, its step, its history, as its folder has them.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close_all, open_page, program, start_browser, start_studio } from "./browser.mjs";
import { book, tab } from "./look.mjs";

let studio, browser, page;
const at = (path) => join(studio.folder, path);
const adjoint = (...args) => execFileSync(program, args, { cwd: studio.folder, encoding: "utf8", stdio: "pipe" });
const result = (of) => page.locator(`[aria-label="Result of ${of}"]`);
const row = (path) => page.locator(".runs li", { has: page.getByLabel(`More about ${path}`, { exact: true }) });
const more = async (path) => {
  const button = page.getByRole("button", { name: `More about ${path}`, exact: true });
  if ((await button.getAttribute("aria-expanded")) === "false") await button.click();
};
async function answer(path, button, of) {
  await more(path);
  await row(path).getByRole("button", { name: button }).click();
  await page.waitForSelector(`.runs [aria-label="Result of ${of}"][aria-busy=false]`, { timeout: 60_000 });
  const text = await row(path).locator(result(of)).textContent();
  await more(path);
  await page.getByRole("button", { name: `More about ${path}`, exact: true }).click();
  return text;
}
const model = `axes layers=2 hidden=32 heads=2 context=16 vocab=500

block x[batch, seq, hidden]:
  a = attention(linear(layer_norm(x), 3*hidden, name=qkv), heads, causal)
  x = x + linear(a, hidden, name=proj)

model tokens[batch, seq], targets[batch, seq]:
  x = embed(tokens, vocab, name=wte)
  x = block^layers(x)
  logits = linear(layer_norm(x), vocab, bias=no, weight=wte, name=readout)
  loss = cross_entropy(logits, targets)
`;
const functor = `functor gaterate(weight = 1e-4: number):
  law approximating
  morphism y = cross_entropy(logits, targets) when training
    -> cross_entropy(logits, targets, ignore, smoothing=smoothing, z=z + weight, cap=cap)
`;

before(async () => {
  studio = await start_studio();
  writeFileSync(at("book.txt"), book().slice(0, 20_000));
  writeFileSync(at("my.scheme"), model);
  mkdirSync(at("functors"));
  writeFileSync(at("functors/gaterate.functor"), functor);
  browser = await start_browser();
  page = await open_page(browser, studio.address);
  await tab(page, "runs");
});
after(close_all);

test("a run is profiled and verified with its own model, vocabulary and step", async () => {
  const flags = "--model my.scheme --set layers=3 --data book.txt --tokenizer char --batch 3 --clip 0 --optimizer lion";
  const said = adjoint("train", ...flags.split(" "), "--steps", "2", "--threads", "1", "--out", "runs/own", "--json");
  const peak = JSON.parse(said).peak_bytes.toLocaleString("en");
  // The text is another one by now, and no model at all.
  writeFileSync(at("my.scheme"), model.replace("axes layers=2 hidden=32", "axes layers=2 hidden=64"));
  await page.getByLabel("More about runs/own").waitFor({ timeout: 30_000 });
  const text = await answer("runs/own", "Profile", "profile");
  assert.match(text, new RegExp(`^peak bytes +${peak} +${peak} +0$`, "m"));
  assert.match(await page.locator(".head .line").textContent(), /--model runs\/own\/model.scheme .*--clip 0/);
  assert.match(await answer("runs/own", "Verify", "verify"), /within .* of the model in float64/);
  assert.match(await page.locator(".head .line").textContent(), /--model runs\/own\/model.scheme .*--set vocab=\d+/);
});
test("a run whose functor and optimizer were files is asked with its folder's copies", async () => {
  writeFileSync(at("my.scheme"), model);
  writeFileSync(at("plain.optimizer"), "optimizer plain(by = 1):\n  p = p - rate*by*g\n");
  const flags = ["--model", "my.scheme", "--data", "book.txt", "--steps", "2", "--threads", "1", "--batch", "2"];
  const stack = "functors/gaterate.functor(weight=0.001) | checkpoint(block)";
  adjoint("train", ...flags, "--stack", stack, "--optimizer", "plain.optimizer", "--out", "runs/files");
  rmSync(at("functors"), { recursive: true });
  rmSync(at("plain.optimizer"));
  await page.getByLabel("More about runs/files").waitFor({ timeout: 30_000 });
  assert.match(await answer("runs/files", "Profile", "profile"), /^peak bytes +([\d,]+) +\1 +0$/m);
  const line = await page.locator(".head .line").textContent();
  assert.match(line, /runs\/files\/functors\/gaterate\.functor\(weight=0\.001\) \| checkpoint\(block\)/);
  assert.match(line, /--optimizer runs\/files\/run\.optimizer/);
  assert.match(await answer("runs/files", "Verify", "verify"), /functors\/gaterate.*' is approximating/);
});
const cell = (path, column) =>
  page.evaluate(
    ([p, c]) => {
      const at = [...document.querySelectorAll(".last th")].findIndex((th) => th.textContent === c),
        line = [...document.querySelectorAll(".last tbody tr")].find((tr) => tr.cells[0].textContent === p);
      return line?.cells[at].textContent ?? null;
    },
    [path, column],
  );
const wait_cell = (path, column, wanted) =>
  page
    .waitForFunction(
      ([p, c, w]) => {
        const at = [...document.querySelectorAll(".last th")].findIndex((th) => th.textContent === c),
          line = [...document.querySelectorAll(".last tbody tr")].find((tr) => tr.cells[0].textContent === p);
        return line?.cells[at].textContent === w;
      },
      [path, column, wanted],
      { timeout: 15_000 },
    )
    .catch(async () => assert.equal(await cell(path, column), wanted));
test("a loss of nothing counted is no number, and an evaluation at a stop is not the best", async () => {
  const talk = [
    { role: "user", content: "the cat sat on a mat and ".repeat(3) },
    { role: "assistant", content: "x" },
  ];
  writeFileSync(at("talks.jsonl"), `${JSON.stringify({ messages: talk })}\n`.repeat(200));
  const flags = "--tokenizer byte --template chatml --log-every 1 --eval-every 1 --eval-batches 1 --threads 1";
  const run = ["--model", "my.scheme", "--data", "talks.jsonl", "--batch", "2", "--steps", "5", ...flags.split(" ")];
  adjoint("train", ...run, "--out", "runs/nulls");
  const file = at("runs/nulls/metrics.jsonl"),
    said = readFileSync(file, "utf8").trim().split("\n").map(JSON.parse);
  assert.ok(
    said.some((l) => l.loss === null),
    "a batch of users alone",
  );
  // Nothing counted at the end, nor in one validation; and the lowest was evaluated at a stop.
  Object.assign(said.at(-1), { loss: null });
  Object.assign(said[1], { val_loss: null });
  Object.assign(said[3], { val_loss: 1.25, at_stop: true });
  writeFileSync(file, said.map((l) => `${JSON.stringify(l)}\n`).join(""));
  await page.getByLabel("More about runs/nulls").waitFor({ timeout: 30_000 });
  await page.locator(".runs label", { hasText: "runs/nulls" }).getByRole("checkbox").check();
  const best = Math.min(...[0, 2, 4].map((i) => said[i].val_loss));
  await wait_cell("runs/nulls", "best", best.toFixed(4));
  assert.equal(await cell("runs/nulls", "loss"), said.findLast((l) => l.loss !== null).loss.toFixed(4));
  assert.match(await page.locator("[role=img]").first().getAttribute("aria-label"), /^Loss over steps: runs\/nulls \d/);
  assert.deepEqual(page.mistakes, []);
});
test("a run that was resumed elsewhere to another step is shown with the steps that it has now", async () => {
  await page.locator(".runs label", { hasText: "runs/own" }).getByRole("checkbox").check();
  await more("runs/files");
  const facts = (path, wanted) =>
    page
      .waitForFunction(
        ([p, w]) =>
          [...document.querySelectorAll(".runs li")].some(
            (li) => li.querySelector("label")?.textContent === p && li.querySelector(".facts").textContent === w,
          ),
        [path, wanted],
        { timeout: 15_000 },
      )
      .catch(async () => assert.equal(await row(path).locator(".facts").textContent(), wanted));
  // One of them is drawn, of the other the options were read.
  for (const path of ["runs/own", "runs/files"]) {
    await facts(path, "2 of 2");
    adjoint("train", "--resume", "--out", path, "--steps", "5", "--log-every", "1");
    await facts(path, "5 of 5");
  }
});
test("two runs are on one plot, and by tokens each step has those of its own batch", async () => {
  // From step 5 on with another batch; the other has steps of 2 x 16 tokens throughout.
  adjoint("train", "--resume", "--out", "runs/own", "--steps", "8", "--batch", "5", "--log-every", "1");
  for (const path of ["runs/nulls", "runs/own", "runs/files"])
    await page
      .locator(".runs label", { hasText: path })
      .getByRole("checkbox")
      .setChecked(path !== "runs/nulls");
  await wait_cell("runs/own", "step", "8");
  const label = () => page.locator("[role=img]").first().getAttribute("aria-label");
  const says = (wanted) =>
    page
      .waitForFunction(
        (w) => new RegExp(w).test(document.querySelector("[role=img]").getAttribute("aria-label")),
        wanted,
        { timeout: 15_000 },
      )
      .catch(async () => assert.match(await label(), new RegExp(wanted)));
  await says("^Loss over steps: runs/own \\S+ at 8 steps; runs/files \\S+ at 5 steps$");
  await page.getByRole("button", { name: "tokens", exact: true }).click();
  const [own, files] = [(5 * 3 + 3 * 5) * 16, 5 * 2 * 16];
  await says(`^Loss over tokens: runs/own \\S+ at ${own} tokens; runs/files \\S+ at ${files} tokens$`);
  await page.getByRole("button", { name: "steps", exact: true }).click();
  // Both curves are drawn, each in its colour.
  const colours = await page
    .locator(".last tbody i")
    .evaluateAll((all) => all.map((i) => getComputedStyle(i).backgroundColor));
  assert.equal(new Set(colours).size, 2);
  const drawn = await page
    .locator(".canvas canvas")
    .first()
    .evaluate((c, wanted) => {
      const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
      return wanted.map((colour) => {
        const [r, g, b] = colour.match(/\d+/g).map(Number);
        let n = 0;
        for (let i = 0; i < d.length; i += 4)
          if (d[i + 3] > 200 && Math.abs(d[i] - r) + Math.abs(d[i + 1] - g) + Math.abs(d[i + 2] - b) < 12) n++;
        return n;
      });
    }, colours);
  assert.ok(
    drawn.every((n) => n > 40),
    `${drawn} pixels of two curves`,
  );
});
test("of a run that measures no memory what its plan needs is said", async () => {
  // As on a GPU: lines without memory, and run.json with the bytes of the plan.
  const file = at("runs/files/metrics.jsonl"),
    said = readFileSync(file, "utf8").trim().split("\n").map(JSON.parse);
  writeFileSync(file, said.map(({ memory_bytes: _, ...l }) => `${JSON.stringify(l)}\n`).join(""));
  const run = JSON.parse(readFileSync(at("runs/files/run.json"), "utf8"));
  writeFileSync(at("runs/files/run.json"), JSON.stringify({ ...run, peak_bytes: 3 * 1024 * 1024 }));
  await page.reload();
  await wait_cell("runs/files", "memory", "3.0 MiB");
  // The other's is measured, once its lines are there.
  let measured = "";
  for (let i = 0; i < 150 && !/MiB/.test(measured); i++) {
    await page.waitForTimeout(100);
    measured = await cell("runs/own", "memory");
  }
  assert.match(measured, /MiB/);
});
