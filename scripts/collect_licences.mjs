// Prints the licences of the packages that the studio's page holds, word by word: those that the lock file does not mark as tools of
// development. Whatever src imports must therefore be a dependency, and NOTICE names the elkjs that is taken.
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), ".."), studio = join(root, "studio");
const json = (path) => JSON.parse(readFileSync(join(studio, path), "utf8"));
const fail = (said) => { console.error(`collect_licences: ${said}`); process.exit(1); };

const { dependencies } = json("package.json");
for (const name of readdirSync(join(studio, "src"), { recursive: true })) {
  if (!/\.(ts|svelte)$/.test(name)) continue;
  for (const [, from] of readFileSync(join(studio, "src", name), "utf8").matchAll(/\bfrom "((?:@[\w-]+\/)?[a-z][\w-]*)[^"]*"/g))
    if (!(from in dependencies)) fail(`studio/src/${name} imports '${from}', which studio/package.json does not list in dependencies`);
}
for (const [path, entry] of Object.entries(json("package-lock.json").packages)) {
  if (path === "" || entry.dev) continue;
  const name = path.replace(/^.*node_modules\//, "");
  const files = readdirSync(join(studio, path)).filter((file) => /^(licen[cs]e|copying|notice)/i.test(file));
  if (files.length === 0 && !entry.license) fail(`${name} has no file LICENSE and names no licence`);
  console.log(`-------- ${name} ${entry.version}: ${entry.license ?? "see below"}`);
  for (const file of files) console.log(readFileSync(join(studio, path, file), "utf8").trim() + "\n");
  if (name === "elkjs" && !readFileSync(join(root, "NOTICE"), "utf8").includes(`elkjs ${entry.version}`))
    fail(`NOTICE does not name elkjs ${entry.version}`);
}
