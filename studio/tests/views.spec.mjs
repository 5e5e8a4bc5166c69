// What views say is of the present question, or says of which it is: late answers, refusals, a server that is busy.
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { start_browser, start_studio } from "./browser.mjs";
import { book, frames, fresh, own_model, set, settled, tab, wait_text } from "./look.mjs";

let studio, browser, page;
const question = (route) => {
  try {
    return route.request().postDataJSON();
  } catch {
    return null;
  }
};
const flag = (args, name) => args[args.indexOf(name) + 1];
// Questions of which this is true wait until they are let go; gives that, and how many there are.
async function hold(which, answer = (route) => route.continue()) {
  const waiting = [];
  let open = false;
  const handler = async (route) => {
    const asked = question(route);
    if (asked?.args && which(asked.args) && !open) {
      await new Promise((go) => waiting.push(go));
      return answer(route).catch(() => {});
    }
    await route.continue();
  };
  await page.route("**/api/ask", handler);
  return {
    waiting,
    go: async () => {
      open = true;
      for (const go of waiting) go();
      await page.unroute("**/api/ask", handler);
    },
  };
}
const until = async (what, good) => {
  for (let i = 0; i < 600; i++) {
    if (await good()) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  assert.fail(what);
};
const facts = () => page.locator(".facts[role=status][aria-label='What the stack costs']").textContent();
const refused = "checkpoint(3) | tensor_parallel(5)";

before(async () => {
  studio = await start_studio();
  browser = await start_browser();
  page = await fresh(browser, studio);
});
beforeEach(async () => {
  await page.unrouteAll({ behavior: "ignoreErrors" });
  await tab(page, "model");
  await set(page, {});
});
after(async () => {
  assert.deepEqual(page.mistakes, []);
  await browser?.close();
  await studio?.stop();
});

test("the plain plan of another batch is not shown beside the present one", async () => {
  await set(page, { batch: 4, stack: "checkpoint" });
  await page.waitForFunction(() => window.__studio.results.plain.present);
  assert.match(await facts(), /peak [\d.]+ MiB −\d+\.\d%.*step [\d.]+ ms \+\d+\.\d%/s);
  const plain = await hold((args) => args[0] === "plan" && flag(args, "--stack") === "");
  await page.evaluate(() => {
    window.__studio.settings.batch = 8;
  });
  await page.waitForFunction(() => window.__studio.results.plan.present?.batch === 8);
  await until("the plain plan is asked", () => plain.waiting.length > 0);
  await frames(page);
  assert.match(await facts(), /legal.*peak.*\d.*step.*\d/s);
  assert.doesNotMatch(await facts(), /%/, "no number of the batch before");
  await tab(page, "stack");
  assert.equal(await page.locator("section[aria-labelledby=stack-costs] .bars", { hasText: "without it" }).count(), 0);
  await plain.go();
  await page.waitForFunction(() => window.__studio.results.plain.present?.batch === 8);
  await wait_text(page, ".facts[role=status]", "%");
});
test("while a plan is awaited there is no verdict and no number", async () => {
  const held = await hold((args) => args[0] === "plan" && flag(args, "--stack") === "accumulate(2)");
  await page.evaluate(() => window.__studio.settings.set_stack("accumulate(2)"));
  await until("the plan is asked", () => held.waiting.length > 0);
  await frames(page);
  assert.match(await facts(), /peak …\s*step …/);
  assert.doesNotMatch(await facts(), /legal|\d/);
  await held.go();
  await wait_text(page, ".facts[role=status]", "legal");
});
test("after a refusal Step, Memory and Ranks say of which stack they are", async () => {
  for (const [id, legal] of [
    ["step", "checkpoint(2)"],
    ["memory", "checkpoint(2)"],
    ["ranks", "data_parallel(2)"],
  ]) {
    await tab(page, id);
    await set(page, { stack: legal });
    assert.equal(await page.locator(".outdated").count(), 0, id);
    await page.evaluate((s) => window.__studio.settings.set_stack(s), refused);
    const name = legal.split("(")[0];
    await page.waitForFunction(
      (n) =>
        new RegExp(`refused.*last\\s+legal one, char, batch 4, ${n}`, "s").test(
          document.querySelector(".outdated")?.textContent ?? "",
        ),
      name,
      { timeout: 30_000 },
    );
    await set(page, { stack: legal });
    assert.equal(await page.locator(".outdated").count(), 0, id);
  }
});
test("a comparison has the names of what is drawn, while answers come and after a refusal", async () => {
  await set(page, { stack: "checkpoint(2)" });
  await tab(page, "compare");
  const title = () => page.locator(".both text", { hasText: /^after:/ }).textContent();
  const is = (s) => until(`the title is of ${s}`, async () => (await title().catch(() => "")) === `after: ${s}`);
  await is("checkpoint(2)");
  const held = await hold((args) => args[0] === "show" && flag(args, "--stack")?.startsWith("accumulate(2)"));
  await page.evaluate(() => window.__studio.settings.set_stack("accumulate(2)"));
  await until("the step is asked", () => held.waiting.length > 0);
  await frames(page);
  assert.equal(await title(), "after: checkpoint(2)");
  await held.go();
  await is("accumulate(2)");
  await page.evaluate((s) => window.__studio.settings.set_stack(s), refused);
  await wait_text(page, ".fate", "tensor_parallel:");
  await wait_text(page, ".fate", "the last two that were legal");
  assert.equal(await title(), "after: accumulate(2)");
  await set(page, { batch: 8, stack: "checkpoint(2)" });
  await is("checkpoint(2)");
});
test("a change asks only for what is in sight", async () => {
  for (const id of ["step", "memory", "ranks", "model"]) {
    await tab(page, id);
    await settled(page);
  }
  const asked = [];
  page.on("request", (r) => {
    if (r.url().endsWith("/api/ask")) asked.push(r.postDataJSON().args);
  });
  await page.evaluate(() => {
    window.__studio.settings.batch = 6;
  });
  await page.waitForFunction(() => window.__studio.results.plan.present?.batch === 6);
  await settled(page);
  assert.deepEqual(asked.map((a) => a[0]).sort(), ["plan", "show"]);
  assert.ok(
    !asked.some(
      (a) => a.includes("--timeline") || a.includes("--memory-states") || (a.includes("--stack") && a[0] === "show"),
    ),
  );
  await tab(page, "memory");
  await page.waitForFunction(() => window.__studio.results.timeline.present?.batch === 6);
  assert.ok(asked.some((a) => a.includes("--timeline")) && asked.some((a) => a.includes("--memory-states")));
});
test("a server that is busy refuses no stack, and is asked again", async () => {
  let times = 0;
  const busy = async (route) => {
    const asked = question(route);
    if (asked?.args[0] !== "plan" || times++ > 0) return route.continue();
    await route.fulfill({
      status: 503,
      contentType: "application/json",
      body: JSON.stringify({ error: { message: "the server is busy" } }),
    });
  };
  await page.route("**/api/ask", busy);
  await page.evaluate(() => window.__studio.settings.set_stack("bf16"));
  await wait_text(page, ".banner", "the server is busy");
  assert.equal(await page.locator("section.stack [role=alert]").count(), 0);
  assert.doesNotMatch(await facts(), /refused/);
  await page.waitForFunction(() => window.__studio.results.plan.present?.stack === "bf16", null, { timeout: 30_000 });
  assert.ok(times > 1);
  await page.getByText("the server is busy").waitFor({ state: "detached" });
});
test("an answer that is lost while events go on is asked again", async () => {
  let times = 0;
  await page.route("**/api/ask", async (route) => {
    if (question(route)?.args[0] !== "plan" || times++ > 0) return route.continue();
    await route.abort("connectionreset");
  });
  await page.evaluate(() => window.__studio.settings.set_stack("bf16 | checkpoint"));
  await page.getByText("server does not answer").waitFor({ timeout: 30_000 });
  await page.waitForFunction(() => window.__studio.results.plan.present?.stack === "bf16 | checkpoint", null, {
    timeout: 30_000,
  });
  await page.getByText("server does not answer").waitFor({ state: "detached", timeout: 30_000 });
});
test("notes of an answer stand beside legality", async () => {
  const notes = ["lora: rank=256 of a map of 384 x 128: the thin matrices are larger than the matrix", "another note"];
  await page.route("**/api/ask", async (route) => {
    if (question(route)?.args[0] !== "plan") return route.continue();
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...(await response.json()), notes } });
  });
  await set(page, { stack: "lora(rank=256)" });
  await page.getByRole("button", { name: "2 notes" }).click();
  assert.deepEqual(await page.locator("section.stack .note").allTextContents(), notes);
  await tab(page, "stack");
  assert.deepEqual(await page.locator("section[aria-labelledby=stack-costs] .note").allTextContents(), notes);
  await page.unrouteAll({ behavior: "ignoreErrors" });
  await set(page, { stack: "checkpoint" });
  assert.equal(await page.locator(".note").count(), 0);
});
test("a closed box is lit by what it holds, and a folded run by any of its blocks", async () => {
  const lit = (source) => page.evaluate((s) => window.__studio.view.light([s], "test"), source);
  const is_lit = (item) =>
    page.waitForFunction((i) => document.querySelector(`.arrow[data-item="${i}"]`)?.classList.contains("lit"), item);
  await page.evaluate(() => {
    window.__studio.view.opened = {};
  });
  await page.waitForSelector('[data-item="(embed)"]');
  await lit("wte.weight");
  await is_lit("(embed)");
  await is_lit("(readout)"); // which reads the same table
  assert.equal(await page.locator('.arrow[data-item="block^"].lit').count(), 0);
  await set(page, { model: "gpt2", batch: 1 });
  await tab(page, "step");
  await settled(page);
  await page.waitForSelector('.arrow[data-item="block[0]…"]');
  await lit("block[7].qkv.weight");
  await is_lit("block[0]…");
  await page.evaluate(() => window.__studio.view.dark());
});
test("a refusal opens the box that gathers what it names", async () => {
  await page.evaluate(() => {
    window.__studio.view.opened = {};
  });
  await page.route("**/api/ask", async (route) => {
    if (question(route)?.args[0] !== "plan") return route.continue();
    await route.fulfill({ json: { ok: false, code: 1, error: { message: "zero: 'wte.weight' cannot be divided" } } });
  });
  await page.evaluate(() => window.__studio.settings.set_stack("zero(3)"));
  await page.locator("section.stack [role=alert]").getByRole("button", { name: "wte.weight" }).click();
  await page.waitForSelector('.frame[data-item="(embed)"]');
  await page.waitForSelector('.point.lit [data-key="o:(embed)/wte.weight"]');
  await page.evaluate(() => {
    window.__studio.view.weights = false;
    window.__studio.view.opened = {};
  });
});
test("what is sharded says over which axis, where it stands and where it hangs", async () => {
  await set(page, { stack: "data_parallel(2)" });
  await tab(page, "step");
  await settled(page);
  await page.waitForSelector(".point.mesh");
  await page.click("button[aria-label^='Fit']");
  const texts = () => page.locator(".diagram svg text").allTextContents();
  await until("the mesh is written", async () => (await texts()).some((t) => t === "data 2"));
  assert.ok(
    (await texts()).some((t) => /[KM]iB, data 2$/.test(t)),
    (await texts()).join("\n"),
  );
});
test("products above the memory chart have their bytes", async () => {
  await set(page, { stack: "checkpoint(2)" });
  await tab(page, "memory");
  await page.waitForSelector(".product small");
  for (const said of await page.locator(".product small").allTextContents()) assert.match(said, /^[\d.]+ [KMG]?i?B$/);
});
test("a field whose value is none has the old one again", async () => {
  await set(page, { batch: 1 });
  const batch = page.getByLabel("Batch", { exact: true });
  const type = async (field, text) => {
    await field.fill(text);
    await field.press("Tab");
  };
  await type(batch, "0");
  assert.equal(await batch.inputValue(), "1");
  await type(batch, "1000000");
  assert.equal(await batch.inputValue(), "65536");
  await set(page, { batch: 8, stack: "data_parallel(2)" });
  await tab(page, "ranks");
  await settled(page);
  const size = page.getByLabel("data", { exact: true });
  await type(size, "0");
  assert.equal(await size.inputValue(), "2");
  assert.equal(await page.evaluate(() => window.__studio.settings.stack), "data_parallel(2)");
});
test("keys make the text as wide as leaves room for the middle, and no wider", async () => {
  const handle = page.getByRole("separator", { name: "Width of the text" });
  await handle.focus();
  for (let i = 0; i < 40; i++) await page.keyboard.press("ArrowLeft");
  assert.equal(await handle.getAttribute("aria-valuenow"), await handle.getAttribute("aria-valuemax"));
  assert.ok((await page.locator("main").boundingBox()).width > 250);
  for (let i = 0; i < 20; i++) await page.keyboard.press("ArrowRight");
});
test("sizes that were read for one model are not put on another", async () => {
  const held = await hold((args) => args.includes("--level") && args.includes("layers=2"));
  const field = page.getByLabel("Set", { exact: true });
  await field.fill("layers=2");
  await field.press("Enter");
  await until("they are read", () => held.waiting.length > 0);
  await page.evaluate(() => window.__studio.open_model("ref"));
  await held.go();
  await settled(page);
  await frames(page);
  assert.deepEqual(await page.evaluate(() => ({ ...window.__studio.settings.sets })), {});
  await field.fill("");
  await page.evaluate(() => window.__studio.open_model("char"));
  await settled(page);
});
test("the table of runs is not cut, nor the outline of a slot", async () => {
  mkdirSync(join(studio.folder, "runs/a-longer-name-of-a-run"), { recursive: true });
  const run = join(studio.folder, "runs/a-longer-name-of-a-run");
  const line = {
    loss: 3.1234,
    val_loss: 2.8888,
    lr: 1.234e-4,
    tokens_per_s: 123456,
    grad_norm: 1.234,
    stall_s: 0.00123,
  };
  writeFileSync(join(run, "run.json"), JSON.stringify({ options: { model: "char", batch: 4, steps: 20000 } }));
  writeFileSync(join(run, "metrics.jsonl"), `${JSON.stringify({ step: 20000, memory_bytes: 2 ** 34, ...line })}\n`);
  await tab(page, "runs");
  await page.locator(".runs label", { hasText: "a-longer-name" }).getByRole("checkbox").check({ timeout: 30_000 });
  await wait_text(page, ".last td", "16.0 GiB");
  const [wide, room] = await page.locator(".last").evaluate((e) => [e.scrollWidth, e.clientWidth]);
  assert.ok(wide <= room, `${wide} in ${room}`);
  await set(page, { model: "char", batch: 8, stack: "pipeline(2, parts=4)" });
  await tab(page, "ranks");
  await page.locator(".slot").first().waitFor({ timeout: 30_000 });
  await page.locator("[role=listbox]").focus();
  await page.keyboard.press("ArrowRight");
  const cut = await page.locator(".time .frame").evaluate((e) => {
    const [box, chart] = [e.getBoundingClientRect(), e.ownerSVGElement.getBoundingClientRect()];
    return [box.top - 1.25 - chart.top, box.left - 1.25 - chart.left];
  });
  assert.ok(
    cut.every((room) => room >= 0),
    `${cut}`,
  );
});
test("a run that takes long to fail keeps the name of its folder, and says why", async () => {
  writeFileSync(join(studio.folder, "book.txt"), book());
  await own_model(page, studio, "slow.scheme");
  await tab(page, "runs");
  await page.evaluate(() => window.__studio.project.refresh_files());
  if ((await page.getByRole("button", { name: "New run" }).getAttribute("aria-expanded")) === "false")
    await page.getByRole("button", { name: "New run" }).click();
  await page.getByLabel("Other flags").fill("--no-such-flag");
  await page.getByLabel("Folder of the run").fill("later");
  // What the job says comes late: until then nobody knows whether it begins.
  let go;
  const late = new Promise((done) => (go = done));
  await page.route("**/api/jobs/*/events*", async (route) => {
    await late;
    await route.continue().catch(() => {});
  });
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await wait_text(page, "form .go", "not known yet whether it begins");
  await page.waitForFunction(
    () =>
      fetch("api/jobs")
        .then((r) => r.json())
        .then((a) => a.jobs.some((j) => j.state === "failed")),
    null,
    { timeout: 30_000 },
  );
  // The page has looked for runs twice, some seconds after each other, and still nobody knows.
  const looks = (r) => r.method() === "GET" && r.url().endsWith("/api/runs");
  for (let i = 0; i < 2; i++) await page.waitForRequest(looks, { timeout: 30_000 });
  assert.equal(await page.getByLabel("Folder of the run").inputValue(), "later");
  go();
  await wait_text(page, "form [role=alert]", "there is no flag '--no-such-flag'");
  assert.equal(await page.getByLabel("Folder of the run").inputValue(), "later");
  await page.getByLabel("Other flags").fill("");
});
test("a list of jobs that comes late does not take the place of a newer one", async () => {
  await tab(page, "runs");
  const state = () => page.evaluate(() => fetch("api/jobs").then((r) => r.json()));
  const was = await state();
  // The first list that is asked for is an old one, and comes last.
  let asked = 0,
    go;
  const late = new Promise((done) => (go = done));
  await page.route("**/api/jobs", async (route) => {
    if (route.request().method() !== "GET" || asked++ > 0) return route.continue();
    await late;
    await route.fulfill({ json: was }).catch(() => {});
  });
  await page.locator("section[aria-labelledby=runs-model]").getByRole("button", { name: "Verify" }).click();
  await page.waitForFunction(() => /verify/.test(document.querySelector(".head .line")?.textContent ?? ""), null, {
    timeout: 60_000,
  });
  go();
  await page.waitForFunction(() => document.querySelector(".head .state")?.textContent === "done", null, {
    timeout: 60_000,
  });
  await wait_text(page, "[role=log]", "exact");
  assert.ok(asked > 1);
});
test("the end of a console stays in sight", async () => {
  await tab(page, "runs");
  await page.locator("section[aria-labelledby=runs-model]").getByRole("button", { name: "Verify" }).click();
  await page.waitForFunction(() => document.querySelector(".head .state")?.textContent === "running");
  await page.evaluate(() => {
    const log = document.querySelector("[role=log]");
    log.style.minHeight = "0";
    log.style.maxHeight = "70px"; // so that what is said is more than there is room for
    log.style.height = "70px";
  });
  await page.waitForFunction(() => document.querySelector(".head .state")?.textContent === "done", null, {
    timeout: 60_000,
  });
  await wait_text(page, "[role=log]", "exact");
  await frames(page);
  const [below, more] = await page
    .locator("[role=log]")
    .evaluate((e) => [e.scrollHeight - e.clientHeight - e.scrollTop, e.scrollHeight - e.clientHeight]);
  assert.ok(more > 0, "it says more than there is room for");
  assert.ok(below <= 2, `${below} of ${more} pixels below`);
});
test("the page begins when the server has answered", async () => {
  const p = await page.context().newPage();
  let times = 0;
  await p.route("**/api/hello", (route) => (times++ === 0 ? route.abort() : route.continue()));
  await p.goto(studio.address);
  await wait_text(p, "#app", "does not answer");
  await p.waitForSelector(".arrow", { timeout: 30_000 });
  assert.doesNotMatch(await p.locator("#app").textContent(), /does not answer/);
  await p.close();
});
