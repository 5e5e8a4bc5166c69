// What is open, selected and lit: the reader's, not the model's. Everything is named by source paths, so that it survives edits.
import { recall, remember } from "./store";

export type Tab = "model" | "step" | "memory" | "compare" | "stack" | "ranks" | "runs" | "functor";
export const tabs: { id: Tab; name: string; hint: string }[] = [
  { id: "model", name: "Model", hint: "The chain: objects and morphisms, opened as far as you like" },
  { id: "step", name: "Step", hint: "Forward, backward and update, and what is remembered between them" },
  { id: "memory", name: "Memory", hint: "What is alive at every moment of a step, and why" },
  { id: "compare", name: "Before and after", hint: "What each functor of the stack made of what" },
  { id: "stack", name: "Stack", hint: "Budgets, and what stacks cost" },
  { id: "ranks", name: "Ranks", hint: "The mesh, who holds what, and the schedule" },
  { id: "runs", name: "Runs", hint: "Train, verify, profile and generate" },
];

// One thing of a scheme: an object, a morphism, a box or a repetition, by its source ("block[0].qkv.weight").
export interface Selected {
  kind: "object" | "morphism" | "box" | "repeat";
  source: string;
  id?: number;
}

class View {
  tab = $state<Tab>("model");
  opened = $state<Record<string, boolean>>({}); // paths of boxes and ops that are open; "block^" opens a repetition folded, "block*" unfolds it
  selected = $state<Selected[]>([]);
  hovered = $state<string>(""); // a source
  lit = $state<Set<string>>(new Set()); // sources that a rule, a chip or a message points at
  lit_by = $state("");
  dragged = $state<"" | "op" | "functor">(""); // what is on its way from a palette
  functor = $state(""); // the one that is looked at
  weights = $state(false); // are parameters drawn
  axis_names = $state(false);
  fused = $state(false); // does the step show fused morphisms
  theme = $state<"auto" | "light" | "dark">("auto");
  left = $state(true);
  right = $state(true);
  palette = $state(false); // Ctrl-K

  is_open(path: string): boolean {
    return this.opened[path] === true;
  }
  toggle(path: string, open = !this.is_open(path)) {
    if (open) this.opened[path] = true;
    else delete this.opened[path];
  }
  select(one: Selected | null, more = false) {
    if (!one) {
      this.selected = [];
      return;
    }
    if (!more) {
      this.selected = [one];
      return;
    }
    const i = this.selected.findIndex((s) => s.kind === one.kind && s.source === one.source && s.id === one.id);
    this.selected = i < 0 ? [...this.selected, one] : this.selected.filter((_, k) => k !== i);
  }
  // The boxes and repetitions around a path in the present model, which this file does not know.
  boxes_of: (path: string) => Iterable<string> = () => [];
  // Lights up sources, and the boxes and repetitions around them, which may be closed.
  light(sources: Iterable<string>, by = "") {
    const all = new Set<string>();
    for (const source of sources) {
      all.add(source);
      const path = source.split(":")[0];
      all.add(path);
      for (const box of this.boxes_of(path)) all.add(box);
    }
    this.lit = all;
    this.lit_by = by;
  }
  dark() {
    this.lit = new Set();
    this.lit_by = "";
  }
}
export const view = new View();

const remembered = ["tab", "functor", "opened", "weights", "axis_names", "theme", "left", "right"] as const;
export function remember_view(): () => void {
  const was = recall<Record<string, unknown>>("view") ?? {};
  for (const key of remembered) if (key in was) (view as any)[key] = was[key];
  if (view.tab === "functor" ? !view.functor : !tabs.some((t) => t.id === view.tab)) view.tab = "model";
  return $effect.root(() => {
    $effect(() => {
      remember("view", Object.fromEntries(remembered.map((key) => [key, $state.snapshot((view as any)[key])])));
    });
  });
}
