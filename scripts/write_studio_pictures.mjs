// Draws the pictures of docs/studio.md anew: starts the studio in a folder of its own, does what the page says with the mouse and the
// keyboard, and saves what is then seen. Drawings are saved by the page's own SVG button, the rest as screenshots.
//   node scripts/write_studio_pictures.mjs build/release/adjoint [name ...]
// Needs the page's packages and Chromium (scripts/build_page.sh, scripts/setup.sh chromium). Without names all pictures are drawn.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), ".."), figures = join(root, "docs/figures/studio");
const [, , program, ...names] = process.argv;
if (!program) { console.error("which adjoint? Say node scripts/write_studio_pictures.mjs build/release/adjoint"); process.exit(2); }
process.env.ADJOINT = resolve(program);
if (existsSync(join(root, "studio/dist/index.html"))) process.env.PAGE ??= join(root, "studio/dist");
const { close_all, open_page, start_browser, start_studio } = await import("../studio/tests/browser.mjs");
const { book, settled } = await import("../studio/tests/look.mjs");

// The model of the pictures is the text that the page of documents shows.
const six = /```scheme file=six\.scheme\n(.*?)```/s.exec(readFileSync(join(root, "docs/studio.md"), "utf8"))?.[1];
if (!six) { console.error("docs/studio.md has no scheme 'six.scheme'"); process.exit(1); }
mkdirSync(figures, { recursive: true });
const studio = await start_studio(), browser = await start_browser();
writeFileSync(join(studio.folder, "six.scheme"), six);
writeFileSync(join(studio.folder, "book.txt"), book());

let page;
const rest = async () => { await page.waitForTimeout(150); await settled(page); await page.waitForTimeout(900); };
const tab = async (id) => { await page.click(`#tab-${id}`); await rest(); };
// A page with nothing remembered, on a model of the list.
async function fresh({ model = "gpt2", batch = 4, width = 1280, height = 760, dark = false, text = true } = {}) {
  await page?.context().close();
  page = await open_page(browser, studio.address, { width, height, dark });
  await page.waitForSelector(".arrow", { timeout: 60_000 });
  await page.waitForFunction((m) => window.__studio.results.functors.length > 0 && [...document.querySelectorAll("select[aria-label=Model] option")].some((o) => o.value === m), model, { timeout: 60_000 });
  if (!text) await page.click("button[aria-label='Text and selection']");
  await page.locator("select[aria-label=Model]").selectOption(model);
  await page.getByLabel("Batch", { exact: true }).fill(String(batch));
  await page.keyboard.press("Enter");
  await rest();
}
const add = async (name, args) => {
  await page.click(`button[aria-label='Add ${name} to the stack']`);
  if (args !== undefined) {
    await page.click(`button[aria-label='Change parameters of ${name}']`);
    await page.getByLabel(`Parameters of ${name} as text`).fill(args);
    await page.keyboard.press("Enter");
    await page.click("h1");
  }
  await rest();
};
const key = (k) => page.locator(`[data-key="${k}"]`).first();
const fit = async () => { await page.click("button[aria-label^='Fit']"); await page.waitForTimeout(300); };
const open = async (k) => { await key(k).dblclick(); await page.waitForTimeout(700); await fit(); };
const unfold = async (k) => { await key(k).focus(); await page.keyboard.press("u"); await page.waitForTimeout(900); await fit(); };
async function drawing(name) {
  const [file] = await Promise.all([page.waitForEvent("download"), page.click("button[title='Save the drawing as SVG']")]);
  await file.saveAs(join(figures, `${name}.svg`));
}
async function shot(name, of) {
  const path = join(figures, `${name}.png`);
  await page.mouse.move(4, 4);
  await (of ? page.locator(of).first() : page).screenshot({ path });
  // Fewer bytes where the distribution's tools are there; the picture is the same without them.
  spawnSync("pngquant", ["--force", "--skip-if-larger", "--strip", "--output", path, "256", path]);
  spawnSync("optipng", ["-quiet", path]);
}

const pictures = {
  async chain() { await fresh({ text: false }); await open("block^"); await shot("chain"); },
  async step() { await fresh({ model: "six.scheme", batch: 8, text: false }); await add("checkpoint", "3"); await tab("step"); await fit(); await shot("step"); },
  async memory() {
    await fresh({ model: "six.scheme", batch: 8 });
    await add("checkpoint", "3");
    await tab("memory");
    const box = await page.locator("svg[role=slider]").boundingBox();
    await page.mouse.click(box.x + box.width * 0.55, box.y + box.height / 3);
    await page.waitForTimeout(300);
    await shot("memory");
  },
  async functor() { await fresh(); await page.locator(".palette .name", { hasText: /lora$/ }).first().click(); await page.waitForSelector(".rule"); await rest(); await page.locator(".rule", { hasText: "linear(x, W)" }).hover(); await page.waitForTimeout(400); const path = join(figures, "functor.png"); await page.screenshot({ path }); },
  async compare() { await fresh({ model: "six.scheme", batch: 8, text: false }); await add("bf16"); await add("checkpoint", "3"); await tab("compare"); await rest(); await shot("compare"); },
  async stack() {
    await fresh({ model: "char", batch: 12, text: false, height: 860 });
    await add("accumulate");
    await add("checkpoint", "block");
    await tab("stack");
    await page.getByRole("checkbox", { name: /^keep/ }).last().uncheck();
    await page.getByRole("button", { name: "Draw the curve" }).click();
    await page.locator("#pareto-0").waitFor({ timeout: 180_000 });
    await page.waitForTimeout(500);
    await shot("stack");
  },
  async ranks() {
    await fresh({ model: "six.scheme", batch: 6, text: false, height: 900 });
    await add("pipeline", "3, parts=3");
    await tab("ranks");
    await page.locator("[data-slot]").first().waitFor({ timeout: 60_000 });
    await page.locator("[data-slot]").nth(1).click();
    await page.waitForTimeout(400);
    await shot("ranks");
    await shot("cat_parts", "section[aria-labelledby=ranks-schedule]");
    await shot("cat_parts_memory", "section[aria-labelledby=ranks-memory]");
  },
  async runs() {
    await fresh({ model: "char", batch: 4, text: false, height: 860 });
    await tab("runs");
    await page.getByRole("button", { name: "New run" }).click().catch(() => {});
    if (!(await page.getByLabel("steps", { exact: true }).isVisible())) await page.getByRole("button", { name: "New run" }).click();
    await page.getByLabel("steps", { exact: true }).fill("150");
    await page.getByLabel("Other flags").fill("--threads 1 --log-every 2 --eval-every 50");
    await page.getByRole("button", { name: "Start", exact: true }).click();
    await page.waitForFunction(() => document.querySelector(".head .state")?.textContent.startsWith("done"), null, { timeout: 240_000 });
    await page.waitForTimeout(1500);
    await shot("runs");
  },
  async dark() { await fresh({ dark: true, model: "six.scheme", batch: 8 }); await add("checkpoint", "3"); await open("forward"); await open("forward.f^"); await shot("dark"); },
  async whole() { await fresh({ width: 1440, height: 860 }); await add("checkpoint", "block"); await tab("step"); await fit(); await shot("studio"); },
  // The pictures of the categorical description, from the text of six blocks.
  async arrow() { await fresh({ model: "six.scheme", batch: 8 }); await drawing("cat_arrow"); await open("forward"); await drawing("cat_power"); await open("forward.f^"); await drawing("cat_block"); await key("forward.f^").focus(); await page.keyboard.press("Escape"); await page.waitForTimeout(500); await unfold("forward.f^"); await drawing("cat_chain"); },
  async states() { await fresh({ model: "six.scheme", batch: 8, text: false }); await tab("memory"); await page.click("button:has-text('without parameters')"); await page.waitForTimeout(300); await shot("cat_states", ".memory .chart"); await add("checkpoint", "3"); await shot("cat_checkpoint_states", ".memory .chart"); },
  async batches() { await fresh({ model: "six.scheme", batch: 8, text: false }); await add("accumulate", "2"); await tab("memory"); await page.waitForTimeout(300); await shot("cat_batches", ".memory .chart"); },
  async backward() { await fresh({ model: "six.scheme", batch: 8, text: false }); await tab("step"); await drawing("cat_backward"); await add("checkpoint", "3"); await drawing("cat_checkpoint"); },
};
let failed = 0;
try {
  for (const [name, draw] of Object.entries(pictures)) {
    if (names.length > 0 && !names.includes(name)) continue;
    try { await draw(); console.log(`drew ${name}`); } catch (e) { failed++; console.error(`${name}: ${e.message.split("\n").slice(0, 4).join(" ")}`); }
  }
} finally { await close_all(); }
// A reader's page loads all of them.
const most = 256_000;
for (const name of readdirSync(figures).filter((n) => n.endsWith(".png"))) {
  const { size } = statSync(join(figures, name));
  if (size > most) { failed++; console.error(`${name} has ${size} bytes, and at most ${most} are wanted`); }
}
process.exit(failed ? 1 : 0);
