// Models of the folder: texts with their presets, and folders of Hugging Face's format.
import * as api from "../api/client";
import { project } from "./project.svelte";

export interface OwnModel {
  name: string; // as --model has it
  presets: string[]; // "my.scheme:small"
}
class OwnModels {
  private presets = $state.raw<Record<string, string[]>>({}); // by file
  private read = new Map<string, string>(); // what was read of which file
  all = $derived.by((): OwnModel[] =>
    project.files
      .filter((f) => f.kind === "model")
      .map((f) => ({ name: f.path, presets: (this.presets[f.path] ?? []).map((p) => `${f.path}:${p}`) })),
  );
  names = $derived(this.all.flatMap((m) => [m.name, ...m.presets]));

  // Every text is read when it is another than before, or another is typed into it.
  async refresh() {
    const texts = project.files.filter((f) => f.kind === "model" && f.path.endsWith(".scheme"));
    await Promise.all(
      texts.map(async (f) => {
        const open = project.open.find((t) => t.path === f.path && !t.library),
          key = open?.text ?? `${f.modified} ${f.bytes}`;
        if (this.read.get(f.path) === key) return;
        this.read.set(f.path, key);
        try {
          const text = open?.text ?? (await api.read_file(f.path)).text,
            named = [...text.matchAll(/^preset[ \t]+([\w.-]+)[ \t]*:/gm)].map((m) => m[1]);
          if (this.read.get(f.path) === key) this.presets = { ...this.presets, [f.path]: named };
        } catch {
          this.read.delete(f.path); // it went meanwhile
        }
      }),
    );
  }
}
export const own_models = new OwnModels();
