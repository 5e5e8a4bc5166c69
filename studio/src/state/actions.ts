// What a person does, wherever it is begun: by a button, a key, the palette or a drop.
import { ask } from "../api/client";
import type { ShownText } from "../api/json";
import { devices } from "./devices";
import { project, type OpenText } from "./project.svelte";
import { results } from "./results.svelte";
import { settings } from "./settings.svelte";
import { parse_item } from "./stack";
import { recall, remember } from "./store";
import { view } from "./view.svelte";

const first_model = "gpt2";

interface Remembered {
  model: string;
  batch: number;
  sets: Record<string, string>;
  stack: string;
  device?: string;
  optimizer?: string;
}

// The first thing: the model that was last looked at, or gpt2, and the lists of functors and ops.
export async function start() {
  const was = recall<Partial<Remembered>>("model");
  if (was?.model) {
    settings.model = was.model;
    settings.batch = was.batch ?? 1;
    settings.sets = was.sets ?? {};
    settings.set_stack(was.stack ?? "");
    settings.optimizer = was.optimizer ?? settings.optimizer;
    settings.device = devices.some((d) => d.name === was.device) ? (was.device ?? "") : "";
  }
  const files = project.refresh_files(),
    lists = results.load_lists();
  await project.restore_drafts();
  const shown = await open_model(settings.model, false);
  if (!shown && results.forward.mistake && settings.model !== first_model) {
    project.say(`${settings.model} cannot be read: ${first_model} is shown.`, "bad");
    await open_model(first_model);
  }
  await Promise.all([files, lists]);
  if (view.tab === "functor") reopen_functor();
}
function reopen_functor() {
  const there =
    results.functors.some((f) => f.name === view.functor) || project.files.some((f) => f.path === view.functor);
  if (there) open_functor(view.functor);
  else view.tab = "model";
}
export function remember_model() {
  remember("model", {
    model: settings.model,
    batch: settings.batch,
    sets: settings.sets,
    stack: settings.stack,
    device: settings.device,
    optimizer: settings.optimizer,
  } satisfies Remembered);
}

// Opens a preset of the library or a file of the folder: its text and its drawing. Whoever goes through many of them sees the last.
export async function open_model(model: string, fresh = true): Promise<boolean> {
  if (fresh) {
    settings.sets = {};
    settings.seq = null;
  }
  settings.model = model;
  remember_model();
  const drawing = results.refresh("open");
  const file = settings.file();
  const shown = file ? (await project.open_file(file)) !== undefined : await open_library_text(model);
  await drawing;
  return shown;
}
async function open_library_text(model: string): Promise<boolean> {
  const answer = await ask<ShownText>(["show", "--model", model, "--text", "--json"], { lane: "text" });
  if (settings.model !== model) return true; // another was opened meanwhile
  if (answer.ok)
    project.put({
      path: model,
      kind: "scheme",
      text: answer.result.text,
      saved: answer.result.text,
      etag: null,
      library: true,
      preset: answer.result.preset,
    });
  return answer.ok || answer.lost === true;
}
export function open_functor(name: string) {
  view.functor = name;
  view.tab = "functor";
  const known = results.functors.find((f) => f.name === name);
  if (name.endsWith(".functor")) void project.open_file(name);
  else if (known?.text)
    project.put({ path: name, kind: "functor", text: known.text, saved: known.text, etag: null, library: true });
}

// A text is saved under another name, and the model becomes that file.
export async function save_as(path: string, text: OpenText): Promise<boolean> {
  const { library, path: from } = text;
  if (!(await project.save_as(path, text))) return false;
  const own = library ? (text.preset ?? from) : settings.model.slice(from.length + 1);
  const drawn = library ? settings.model === from : settings.file() === from;
  if (text.kind === "scheme" && drawn) {
    settings.model = own ? `${path}:${own}` : path;
    remember_model();
  }
  return true;
}

// A file of the folder gets another name; what is typed in it is saved first.
export async function rename_file(from: string, to: string): Promise<boolean> {
  const open = project.open.find((t) => t.path === from && !t.library),
    drawn = settings.file() === from,
    preset = settings.model.slice(from.length);
  if (open && open.text !== open.saved && !(await project.save(from))) return false;
  if (!(await project.rename(from, to))) return false;
  if (drawn) await open_model(`${to}${preset}`, false);
  return true;
}
export async function delete_file(path: string): Promise<boolean> {
  const drawn = settings.file() === path;
  if (!(await project.remove(path))) return false;
  if (drawn) await open_model(first_model);
  return true;
}

export function add_functor(text: string, at = settings.items.length) {
  const items = [...settings.items];
  items.splice(at, 0, parse_item(text));
  settings.items = items;
  remember_model();
}
export function move_functor(from: number, to: number) {
  const items = [...settings.items],
    [one] = items.splice(from, 1);
  items.splice(to > from ? to - 1 : to, 0, one);
  settings.items = items;
  remember_model();
}
export function remove_functor(i: number) {
  settings.items = settings.items.filter((_, k) => k !== i);
  remember_model();
}
export function change_functor(i: number, args: string) {
  settings.items = settings.items.map((it, k) => (k === i ? { ...it, args } : it));
  remember_model();
}
