// What the commands answered about the present model and stack. A change of text, sizes or stack asks again; a refusal or a
// broken text leaves the last good answer in place and says what is wrong.
import { ask, type Mistake } from "../api/client";
import type { FunctorInfo, MemoryStates, SchemeJson, Shown, Timeline } from "../api/json";
import { project, with_returns } from "./project.svelte";
import { settings } from "./settings.svelte";
import { begin, painted } from "./timings";
import { view } from "./view.svelte";

// The keys of `plan --json` that the page reads; more are there.
export interface Plan {
  model: string;
  stack: string;
  params: number;
  trained_params?: number;
  peak_bytes: number;
  live_bytes: number;
  step_s: number;
  flops_per_step: number;
  tokens_per_step: number;
  recomputed_flops?: number;
  categories: Record<string, number>;
  law?: string;
  device?: unknown;
  timeline?: Timeline;
  [more: string]: any;
}
interface Question {
  args: string[];
  drafts: Record<string, string>;
  stdin?: string;
}
// One question with its last good answer. `key` is what was asked, so that nothing is asked twice; which question is the last is told
// by their number, for the same may be asked again after another.
export class Lane<T> {
  value = $state.raw<T | null>(null);
  mistake = $state<Mistake | null>(null);
  busy = $state(false);
  seconds = $state(0);
  private key = "";
  private asked: Promise<boolean> = Promise.resolve(false);
  private turn = 0;
  constructor(readonly name: string) {}

  // Whether there is a good answer to this very question.
  put(args: string[], drafts: Record<string, string>, stdin?: string): Promise<boolean> {
    const key = JSON.stringify([project.edition, args, drafts, stdin]);
    if (key === this.key) return this.asked;
    this.key = key;
    this.asked = this.answer({ args, drafts, stdin }, ++this.turn);
    return this.asked;
  }
  private async answer({ args, drafts, stdin }: Question, mine: number): Promise<boolean> {
    this.busy = true;
    const answer = await ask<T>(args, { drafts, stdin, lane: this.name });
    if (mine !== this.turn) return false; // a newer question is on its way
    this.busy = false;
    if (answer.ok) {
      this.value = answer.result;
      this.mistake = null;
      this.seconds = answer.seconds;
      return true;
    }
    if (answer.cancelled || answer.lost) this.key = ""; // no answer to keep: it may be asked again
    if (answer.lost) project.lost = true;
    else if (!answer.cancelled) this.mistake = answer.error;
    return false;
  }
}

class Results {
  forward = new Lane<Shown>("forward");
  step = new Lane<Shown>("step"); // with the stack
  plain = new Lane<Plan>("plan-plain"); // the plan without the stack's named functors
  plan = new Lane<Plan>("plan"); // with the stack
  timeline = new Lane<Plan>("timeline");
  states = new Lane<MemoryStates>("states");
  own = new Lane<unknown>("own"); // whether the open text can be read, where it is no model
  pending = $state(false); // something was changed of which not all is answered
  functors = $state.raw<FunctorInfo[]>([]);
  ops = $state.raw<any>(null);
  presets = $state.raw<any>(null);

  // Legal, or the sentence that says why not.
  refusal = $derived(this.forward.mistake ? null : (this.plan.mistake ?? this.step.mistake));
  legal = $derived(!this.refusal && !this.forward.mistake);

  async load_lists() {
    const [functors, ops] = await Promise.all([
      ask<{ functors: FunctorInfo[] }>(["functors", "--json"]),
      ask<any>(["ops", "--json"]),
    ]);
    if (functors.ok) this.functors = Array.isArray(functors.result) ? functors.result : functors.result.functors;
    if (ops.ok) this.ops = ops.result;
    // Which functors there are decides how a step is drawn.
    if (this.wants.has("step")) void this.refresh();
    const models = await ask<{ models: { name: string }[] }>(["models", "--json"]);
    if (models.ok) this.presets = models.result.models.map((m) => m.name);
  }
  // Which answers the present tab needs; the forward scheme and the plan are always wanted.
  wants = $state<Set<string>>(new Set());

  private timer: ReturnType<typeof setTimeout> | undefined;
  // After a keystroke or a dropped functor: asks all that is wanted again.
  changed(what: string, wait = 0) {
    begin(what);
    this.pending = true;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.refresh(what), wait);
  }
  private turn = 0;
  async refresh(what = "refresh") {
    const mine = ++this.turn;
    clearTimeout(this.timer);
    this.pending = true;
    const drafts = project.drafts(),
      asked = performance.now(),
      parts: Record<string, number> = {};
    const timed = async (name: string, p: Promise<boolean>) => {
      const good = await p;
      parts[name] = performance.now() - asked;
      return good;
    };
    const all = [
      timed("forward", this.forward.put(this.forward_args(), drafts)),
      timed("plan", this.plan.put(["plan", ...settings.step_args(), ...this.device_args(), "--json"], drafts)),
    ];
    if (this.wants.has("step") && this.functors.length > 0)
      all.push(timed("step", this.step.put(["show", ...settings.step_args(this.drawn_stack()), "--json"], drafts)));
    if (this.wants.has("timeline"))
      all.push(
        timed(
          "timeline",
          this.timeline.put(["plan", ...settings.step_args(), ...this.device_args(), "--timeline", "--json"], drafts),
        ),
      );
    if (this.wants.has("states"))
      all.push(
        timed("states", this.states.put(["show", ...settings.step_args(), "--memory-states", "--json"], drafts)),
      );
    const good = (await Promise.all(all)).every((g) => g);
    if (mine !== this.turn) return; // a newer change has begun meanwhile
    painted(what, { ...parts, good: Number(good) });
    const plain = settings.stack
      ? this.plain.put(["plan", ...settings.step_args(""), ...this.device_args(), "--json"], drafts)
      : null;
    this.pending = false;
    await plain;
  }
  forward_args(): string[] {
    return ["show", ...settings.model_args(), "--json"];
  }
  // The scheme of the texts as they are now, whatever was typed since the drawing was made; null where they have a mistake.
  async present(): Promise<SchemeJson | null> {
    for (;;) {
      const edition = project.edition,
        args = this.forward_args(),
        drafts = project.drafts();
      const good = await this.forward.put(args, drafts);
      const same =
        JSON.stringify([edition, args, drafts]) ===
        JSON.stringify([project.edition, this.forward_args(), project.drafts()]);
      if (same) return good ? (this.forward.value?.scheme ?? null) : null;
    }
  }
  // A functor or an optimizer that is open is read by itself, for it need not be in the stack.
  async check_own() {
    const text = project.text;
    if (!text || text.library || (text.kind !== "functor" && text.kind !== "optimizer")) return;
    if (text.kind === "functor")
      await this.own.put(
        ["edit"],
        {},
        JSON.stringify({ file: text.path, text: with_returns(text.text, text.crlf), read: true }),
      );
    else
      await this.own.put(["plan", "--model", "char", "--optimizer", text.path, "--json"], {
        [text.path]: with_returns(text.text, text.crlf),
      });
  }
  // Fusions join calls of several boxes into one, which is how a step runs and not how it is read: unless asked for they are left out.
  drawn_stack(): string {
    const fuse = this.functors.some((f) => f.name === "fuse" && f.default);
    return fuse && !view.fused && !settings.items.some((i) => i.name === "fuse")
      ? [settings.stack, "-fuse"].filter((s) => s).join(" | ")
      : settings.stack;
  }
  device_args(): string[] {
    return settings.device ? ["--for", settings.device] : [];
  }
  want(...names: string[]) {
    const missing = names.filter((n) => !this.wants.has(n));
    if (missing.length === 0) return;
    this.wants = new Set([...this.wants, ...missing]);
    void this.refresh();
  }
}
export const results = new Results();
