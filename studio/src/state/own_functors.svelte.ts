// Functors of the folder's own files: their law and parameters, as `adjoint edit` reads them off the text.
import { ask, unanswered } from "../api/client";
import type { FunctorInfo } from "../api/json";
import { project, with_returns } from "./project.svelte";
import { results } from "./results.svelte";

interface ReadFunctor {
  name: string;
  summary?: string;
  law: FunctorInfo["law"];
  default?: boolean;
  params: { name: string; default: string | null; words: string[]; span?: { from: number; to: number } }[];
}
export interface OwnFunctor extends FunctorInfo {
  called: string; // what the text calls it; `name` is its file, as a stack says it
}
class OwnFunctors {
  known = $state.raw<Record<string, OwnFunctor>>({}); // by path
  mistakes = $state.raw<Record<string, string>>({}); // of those that cannot be read
  private asked = new Map<string, string>();
  // Those of the folder's files that can be read, in the order of the files.
  get of_folder(): OwnFunctor[] {
    return project.files.flatMap((f) => this.known[f.path] ?? []);
  }

  // Every file is read when it is another than before, or another is typed into it.
  async refresh() {
    const paths = project.files.filter((f) => f.path.endsWith(".functor"));
    await Promise.all(
      paths.map(async (f) => {
        const open = project.open.find((t) => t.path === f.path && !t.library);
        const text = open && open.text !== open.saved ? with_returns(open.text, open.crlf) : undefined;
        const key = text ?? `${f.modified} ${f.bytes}`;
        if (this.asked.get(f.path) === key) return;
        this.asked.set(f.path, key);
        const answer = await ask<{ functor: ReadFunctor; text: string }>(["edit"], {
          stdin: JSON.stringify({ file: f.path, ...(text !== undefined && { text }), read: true }),
        });
        if (this.asked.get(f.path) !== key) return;
        if (answer.ok && answer.result.functor) this.put(f.path, answer.result.functor, answer.result.text);
        else if (unanswered(answer)) this.asked.delete(f.path);
        else if (!answer.ok) this.mistakes = { ...this.mistakes, [f.path]: answer.error.message };
      }),
    );
  }
  private put(path: string, read: ReadFunctor, text: string) {
    const bytes = new TextEncoder().encode(text);
    const written = (p: ReadFunctor["params"][number]) =>
      p.span ? new TextDecoder().decode(bytes.subarray(p.span.from, p.span.to)) : "";
    const params = read.params.map((p) => ({
      name: p.name,
      default: p.default,
      words: p.words ?? [],
      list: /\b(several|list)\b/.test(written(p).replace(/^[^:]*/, "")),
    }));
    const { [path]: _, ...mistakes } = this.mistakes;
    this.mistakes = mistakes;
    this.known = {
      ...this.known,
      [path]: {
        name: path,
        called: read.name,
        summary: read.summary ?? "",
        law: read.law,
        default: read.default === true,
        gpu_only: false,
        of_forward: false,
        params,
      },
    };
  }
}
export const own_functors = new OwnFunctors();
// The program's functors that a stack can name: the defaults are in it already, and those of a forward scheme generation applies by itself.
export const addable_functors = (): FunctorInfo[] => results.functors.filter((f) => !f.default && !f.of_forward);
// A functor by the name that a stack has for it: one of the program's, or a file of the folder.
export const functor_of = (name: string): FunctorInfo | undefined =>
  results.functors.find((f) => f.name === name) ?? own_functors.known[name];
// What a plan calls the functor that a stack names: a file's functor has a name of its own.
export const called = (name: string): string => own_functors.known[name]?.called ?? name;
