// What each functor of the stack costs and saves: the plan of the stack without it, beside the plan with it. Plans are asked for
// one after another when the present plan stands, and kept, so that a chip that is moved or changed asks for little.
import { ask, unanswered } from "../../api/client";
import { asked } from "../../state/asked";
import { project } from "../../state/project.svelte";
import { results, type Plan } from "../../state/results.svelte";
import { settings } from "../../state/settings.svelte";
import { print_stack } from "../../state/stack";

export type Without = { peak_bytes: number; step_s: number } | { refusal: string };
class Costs {
  without = $state.raw<Record<number, Without>>({}); // by the chip's id
  busy = $state(false);
  private kept = new Map<string, Without>();
  private turn = 0;
  private stopper: AbortController | undefined;

  async refresh() {
    const mine = ++this.turn,
      drafts = project.drafts(),
      items = [...settings.items];
    this.stopper?.abort();
    const stopper = (this.stopper = new AbortController());
    const found: Record<number, Without> = {};
    this.without = {}; // those of another model or batch are none of this one
    this.busy = true;
    for (const item of items) {
      const stack = print_stack(items.filter((i) => i.id !== item.id));
      const args = ["plan", ...settings.step_args(stack), ...results.device_args(), "--json"],
        key = JSON.stringify([project.edition, args, drafts]);
      let one = this.kept.get(key);
      if (!one) {
        const answer = await ask<Plan>(args, { drafts, lane: "without", signal: stopper.signal });
        if (mine !== this.turn) return;
        if (answer.ok) one = { peak_bytes: answer.result.peak_bytes, step_s: answer.result.step_s };
        else if (unanswered(answer)) break;
        else one = { refusal: answer.error.message };
        if (this.kept.size > 300) this.kept.clear();
        this.kept.set(key, one);
      }
      asked.set(`without-${item.id}`, args);
      found[item.id] = one;
      this.without = { ...found };
    }
    this.without = found;
    this.busy = false;
  }
}
export const costs = new Costs();
