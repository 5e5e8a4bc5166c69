// What all views are about: a model with its sizes, a stack, an optimizer, a device. `model_args` and `stack_args` are the
// flags of every command.
import { parse_stack, print_stack, type StackItem } from "./stack";

class Settings {
  model = $state("gpt2"); // a preset, a .scheme file of the folder, or file.scheme:preset
  batch = $state(1);
  seq = $state<number | null>(null);
  sets = $state<Record<string, string>>({});
  optimizer = $state("adamw");
  device = $state(""); // whose seconds are predicted; "": a processor's
  items = $state<StackItem[]>([]);
  stack = $derived(print_stack(this.items));

  model_args(): string[] {
    const args = ["--model", this.model, "--batch", String(this.batch)];
    if (this.seq) args.push("--seq", String(this.seq));
    for (const [name, value] of Object.entries(this.sets)) if (value !== "") args.push("--set", `${name}=${value}`);
    return args;
  }
  step_args(stack = this.stack): string[] {
    return [...this.model_args(), "--optimizer", this.optimizer, "--stack", stack];
  }
  set_stack(text: string) {
    this.items = parse_stack(text);
  }
  // The file of the model's text in the folder, or "" for one of the library.
  file(): string {
    const path = this.model.split(":")[0];
    return path.endsWith(".scheme") ? path : "";
  }
}
export const settings = new Settings();
