// What the commands answered about the present model and stack. A change of text, sizes or stack asks again; a refusal or a
// broken text leaves the last good answer in place and says what is wrong.
import { ask, unanswered, type Mistake } from "../api/client";
import type { FunctorInfo, MemoryStates, Op, SchemeJson, Shown, Timeline } from "../api/json";
import { asked } from "./asked";
import { project, with_returns, type Message } from "./project.svelte";
import { settings } from "./settings.svelte";
import { print_stack } from "./stack";
import { begin, painted } from "./timings";
import { view, type Tab } from "./view.svelte";

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
  against?: string; // of what the law is true; "": of the step as it comes
  device?: string; // whose rates the seconds come from
  fits?: boolean; // where the memory of the device is known
  timeline?: Timeline;
  [more: string]: any;
}
interface Question {
  args: string[];
  drafts: Record<string, string>;
  stdin?: string;
}
const key_of = ({ args, drafts, stdin }: Question) => JSON.stringify([project.edition, args, drafts, stdin]);
// The step that all lanes speak of, each with a question of its own.
const subject = () => JSON.stringify([project.edition, project.drafts(), settings.step_args(), settings.device]);

// One question with its last good answer. `key` is what was asked, so that nothing is asked twice; which question is the last is told
// by their number, for the same may be asked again after another.
export class Lane<T> {
  value = $state.raw<T | null>(null); // the last good answer, whatever was asked since
  notes = $state.raw<string[]>([]); // what the command said beside it
  about = $state(""); // of which step it is: answers of two lanes belong together where this is the same
  mistake = $state.raw<Mistake | null>(null); // of the last question that was answered
  busy = $state(false);
  later = false; // the server could not ask the command
  private said: Message | null = null; // that it could not
  private of = $state("");
  private mistake_of = $state("");
  // The answer to what is asked now, and the refusal of it; null while that is not known.
  present = $derived.by(() => (this.value !== null && this.of === key_of(this.question()) ? this.value : null));
  refused = $derived.by(() => (this.mistake && this.mistake_of === key_of(this.question()) ? this.mistake : null));
  // What is shown is of another question, and this one is being asked.
  stale = $derived.by(() => this.value !== null && !this.present && !this.refused);
  private key = "";
  private asked: Promise<boolean> = Promise.resolve(false);
  private asked_about = "";
  private turn = 0;
  constructor(
    readonly name: string,
    private question: () => Question,
  ) {}

  // What it would ask now.
  present_key = () => key_of(this.question());
  // Whether there is a good answer to this very question.
  ask(): Promise<boolean> {
    const question = this.question(),
      key = key_of(question);
    this.asked_about = subject();
    if (key === this.key) {
      if (key === this.of) this.about = this.asked_about;
      return this.asked;
    }
    this.key = key;
    this.asked = this.answer(question, key, ++this.turn);
    return this.asked;
  }
  private async answer({ args, drafts, stdin }: Question, key: string, mine: number): Promise<boolean> {
    this.busy = true;
    this.later = false;
    const answer = await ask<T>(args, { drafts, stdin, lane: this.name });
    if (mine !== this.turn) return false; // a newer question is on its way
    this.busy = false;
    if (answer.ok) {
      asked.set(this.name, args);
      this.value = answer.result;
      this.notes = answer.notes ?? [];
      this.of = key;
      this.about = this.asked_about;
      this.mistake = null;
      if (this.said && project.message === this.said) project.message = null;
      this.said = null;
      return true;
    }
    if (unanswered(answer)) {
      this.key = ""; // it may be asked again
      if (answer.lost) project.lost = true;
      this.later = answer.later === true;
      if (this.later) {
        project.say(answer.error.message, "bad");
        this.said = project.message;
      }
    } else {
      this.mistake = answer.error;
      this.mistake_of = key;
    }
    return false;
  }
}

// What a tab draws beside the model and the plan, which are always asked for, as the bar above shows their numbers.
const drawn: Record<Tab, ("step" | "timeline" | "states")[]> = {
  model: [],
  step: ["step"],
  memory: ["timeline", "states"],
  compare: ["step"],
  stack: [],
  ranks: ["step", "timeline", "states"],
  runs: [],
  functor: [],
};

class Results {
  private of_texts = (args: string[]): Question => ({ args: [...args, "--json"], drafts: project.drafts() });
  private of_plan = (stack: string, ...more: string[]) =>
    this.of_texts(["plan", ...settings.step_args(stack), ...this.device_args(), ...more]);
  forward = new Lane<Shown>("forward", () => this.of_texts(["show", ...settings.model_args()]));
  step = new Lane<Shown>("step", () => this.of_texts(["show", ...settings.step_args(this.drawn_stack())]));
  plain = new Lane<Plan>("plan-plain", () => this.of_plan("")); // the plan without the stack's named functors
  plan = new Lane<Plan>("plan", () => this.of_plan(settings.stack));
  timeline = new Lane<Plan>("timeline", () => this.of_plan(settings.stack, "--timeline"));
  states = new Lane<MemoryStates>("states", () =>
    this.of_texts(["show", ...settings.step_args(), ...this.device_args(), "--memory-states"]),
  );
  own = new Lane<unknown>("own", () => this.of_own()); // whether the open text can be read, where it is no model
  pending = $state(false); // something was changed of which not all is answered
  functors = $state.raw<FunctorInfo[]>([]);
  ops = $state.raw<Op[]>([]);
  presets = $state.raw<any>(null);
  optimizers = $derived(this.ops.filter((o) => o.kind === "optimizer").map((o) => o.name));

  // Legal, or the sentence that says why not.
  refusal = $derived(this.forward.mistake ? null : (this.plan.mistake ?? this.step.refused));
  legal = $derived(!this.refusal && !this.forward.mistake);
  // What the commands noted about the model and the stack: warnings, and other things that change nothing.
  notes = $derived(
    this.legal ? [...new Set([this.forward, this.plan].flatMap((l) => (l.present ? l.notes : [])))] : [],
  );

  async load_lists() {
    const [functors, ops] = await Promise.all([
      ask<{ functors: FunctorInfo[] }>(["functors", "--json"]),
      ask<{ ops: Op[] }>(["ops", "--json"]),
    ]);
    if (functors.ok) this.functors = functors.result.functors;
    if (ops.ok) this.ops = ops.result.ops;
    void this.refresh(); // which functors there are decides how a step is drawn
    const models = await ask<{ models: { name: string }[] }>(["models", "--json"]);
    if (models.ok) this.presets = models.result.models.map((m) => m.name);
  }
  // The step that the present tab draws, or that of the present question, if it is known; whatever else is said of a step is of it.
  step_in_sight = $derived(drawn[view.tab].includes("step") ? this.step.value : this.step.present);

  private timer: ReturnType<typeof setTimeout> | undefined;
  // After a keystroke or a dropped functor: asks all again that is in sight.
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
    const asked = performance.now(),
      parts: Record<string, number> = {};
    const seen = drawn[view.tab].filter((name) => name !== "step" || this.functors.length > 0);
    const lanes = (["forward", "plan", ...seen] as const).map((name) => this[name]);
    const all = lanes.map(async (lane) => {
      const good = await lane.ask();
      parts[lane.name] = performance.now() - asked;
      return good;
    });
    const good = (await Promise.all(all)).every((g) => g);
    if (mine !== this.turn) return; // a newer change has begun meanwhile
    painted(what, { ...parts, good: Number(good) });
    const plain = settings.stack ? this.plain.ask() : null;
    this.pending = false;
    await plain;
    if (mine === this.turn && [...lanes, this.plain].some((lane) => lane.later))
      this.timer = setTimeout(() => void this.refresh(), 2000);
  }
  // The scheme of the texts as they are now, whatever was typed since the drawing was made; null where they have a mistake.
  async present(): Promise<SchemeJson | null> {
    for (;;) {
      const key = this.forward.present_key();
      const good = await this.forward.ask();
      if (key === this.forward.present_key()) return good ? (this.forward.value?.scheme ?? null) : null;
    }
  }
  // A functor or an optimizer that is open is read by itself, for it need not be in the stack.
  async check_own() {
    const text = project.text;
    if (text && !text.library && (text.kind === "functor" || text.kind === "optimizer")) await this.own.ask();
  }
  private of_own(): Question {
    const path = project.text?.path ?? "",
      text = with_returns(project.text?.text ?? "", project.text?.crlf);
    return path.endsWith(".functor")
      ? { args: ["edit"], drafts: {}, stdin: JSON.stringify({ file: path, text, read: true }) }
      : { args: ["plan", "--model", "char", "--optimizer", path, "--json"], drafts: { [path]: text } };
  }
  // Fusions join calls of several boxes into one, which is how a step runs and not how it is read: unless asked for they are left out.
  drawn_stack(items = settings.items): string {
    const fuse = this.functors.some((f) => f.name === "fuse" && f.default);
    return [print_stack(items), fuse && !view.fused && !items.some((i) => i.name === "fuse") ? "-fuse" : ""]
      .filter((s) => s)
      .join(" | ");
  }
  // Flags of a plan, and of what is alive in it; the step that is drawn is a processor's.
  device_args(): string[] {
    return settings.device ? ["--device", settings.device] : [];
  }
}
export const results = new Results();
