// Jobs read files as they are saved, so what a job will read is saved before it begins, and nothing else.
import * as api from "../api/client";
import { is_source, project } from "./project.svelte";

// Paths of unsaved texts that a command reads: those that its words name, and those that a text which it reads names (`use`, a stack).
export async function needed_by(args: string[]): Promise<string[]> {
  const dirty = new Set(project.dirty.map((t) => t.path)),
    needed: string[] = [],
    seen = new Set<string>();
  if (dirty.size === 0) return [];
  const sources = [...new Set([...project.files.filter((f) => is_source(f.path)).map((f) => f.path), ...dirty])];
  const names = (text: string, path: string, from: string) => {
    const beside = from.slice(0, from.lastIndexOf("/") + 1),
      said = beside && path.startsWith(beside) ? path.slice(beside.length) : path;
    return [path, said].some((p) =>
      new RegExp(`(^|[^\\w./-])${p.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}($|[^\\w/])`).test(text),
    );
  };
  const visit = async (text: string, from: string): Promise<void> => {
    for (const path of sources) {
      if (seen.has(path) || !names(text, path, from)) continue;
      seen.add(path);
      if (dirty.has(path)) needed.push(path);
      const open = project.find(path);
      await visit(open && !open.library ? open.text : await text_of(path), path);
    }
  };
  await visit(args.join("\n"), "");
  return needed;
}
const text_of = async (path: string) => {
  try {
    return (await api.read_file(path)).text;
  } catch {
    return "";
  }
};
// Says if all of it is saved; where that cannot be, the page says why.
export async function save_needed(args: string[]): Promise<boolean> {
  for (const path of await needed_by(args)) if (!(await project.save(path))) return false;
  return true;
}
