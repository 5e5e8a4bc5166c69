// Stacks that the program chooses: the fastest within a budget, and the curve of all budgets.
import { bytes } from "../../state/format";
import * as api from "../../api/client";
import { asked } from "../../state/asked";
import { jobs } from "../../state/jobs.svelte";
import { needed_by } from "../../state/needed";
import { is_source, project } from "../../state/project.svelte";
import { results, type Plan } from "../../state/results.svelte";
import { settings } from "../../state/settings.svelte";

export interface Point {
  peak_bytes: number;
  step_s: number;
  stack: string;
  flops: number;
  recomputed_flops: number;
  host_peak_bytes: number;
}

// What is tried beside: what a person named (also when the present stack was chosen by the program), or nothing.
class Base {
  keep = $state(true);
  private taken = $state<{ stack: string; base: string } | null>(null);
  named = $derived(this.taken && this.taken.stack === settings.stack ? this.taken.base : settings.stack);
  stack = $derived(this.keep ? this.named : "");
  take(stack: string) {
    const base = this.named;
    settings.set_stack(stack);
    this.taken = { stack: settings.stack, base };
  }
}
export const base = new Base();

class Fit {
  budget = $state<number | null>(null); // bytes
  typed = $state(""); // that budget as somebody has typed it
  approximate = $state(false);
  busy = $state(false);
  since = $state(0);
  found = $state.raw<{ key: string; budget: number; plan: Plan } | null>(null);
  refused = $state.raw<{ key: string; message: string } | null>(null);
  smallest = $state.raw<{ key: string; bytes: number } | null>(null); // that something fits, once that is known: the slider begins there
  below = $state.raw<{ key: string; asked: string } | null>(null); // what was asked for and nothing fits: the smallest is shown instead
  private stopper: AbortController | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;

  key() {
    return JSON.stringify([
      project.edition,
      project.drafts(),
      settings.model_args(),
      settings.optimizer,
      settings.device,
      base.stack,
      this.approximate,
    ]);
  }
  // The slider moves through many budgets; the one where it rests is tried.
  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.run(), 350);
  }
  // The fastest stack within the budget. Where nothing needs so little the smallest that something fits becomes the budget.
  async run() {
    this.below = null;
    const refused = await this.try_budget(),
      { smallest, budget, typed } = this;
    if (!refused || budget === null || smallest?.key !== this.key() || smallest.bytes <= budget) return;
    this.below = { key: smallest.key, asked: typed || bytes(budget) };
    this.budget = smallest.bytes;
    this.typed = "";
    await this.try_budget();
  }
  private async try_budget(): Promise<boolean> {
    if (this.budget === null) return false;
    const key = this.key(),
      { typed } = this,
      budget = Math.round(this.budget);
    this.stopper?.abort();
    const stopper = (this.stopper = new AbortController());
    this.busy = true;
    this.since = Date.now();
    const args = [
      "plan",
      ...settings.step_args(base.stack),
      ...results.device_args(),
      "--fit",
      typed || `${budget}B`,
      ...(this.approximate ? ["--allow-approximating"] : []),
      "--json",
    ];
    const answer = await api.ask<Plan>(args, { drafts: project.drafts(), lane: "fit", signal: stopper.signal });
    if (stopper !== this.stopper) return false;
    this.busy = false;
    if (answer.ok) {
      asked.set("fit", args);
      this.found = { key, budget, plan: answer.result };
      this.refused = null;
    } else if (!answer.cancelled) {
      this.found = null;
      this.refused = { key, message: in_words(answer.error.message, typed || bytes(budget)) };
      const smallest = /([\d,]+) bytes \(/.exec(answer.error.message);
      if (smallest && / smallest /.test(answer.error.message))
        this.smallest = { key, bytes: Number(smallest[1].replaceAll(",", "")) };
    }
    return !answer.ok && !answer.cancelled;
  }
  cancel() {
    clearTimeout(this.timer);
    this.stopper?.abort();
    this.stopper = undefined;
    this.busy = false;
  }
}
export const fit = new Fit();
// A refusal speaks of the command's flag and of single bytes; here a slider was moved.
function in_words(message: string, budget: string): string {
  return message
    .replace(/^adjoint: /, "")
    .replace(/^--fit [^:]+: /, () => `Within ${budget}: `)
    .replace("that --fit can choose", "that can be chosen")
    .replace(/([\d,]+) bytes \([^)]*\)/, (_, n: string) => bytes(Number(n.replaceAll(",", ""))))
    .replace(/--fit/g, "the budget");
}

// The curve takes long enough to be a job of the server: it goes on when the page is reloaded, and is found again by what was asked.
class Pareto {
  approximate = $state(false);
  since = $state(0);
  said = $state("");
  refusal = $state("");
  private curves = $state.raw<Record<string, Point[]>>({}); // by what was asked of which files
  private followed = $state.raw({ job: "", key: "" }); // the job that runs
  key = $derived(this.key_of(this.args()));
  current = $derived.by(() => {
    const points = this.curves[this.key] ?? [];
    if (points.length > 0) asked.set("pareto", this.args());
    return points;
  }); // points of the present model and stack
  job = $derived(this.followed.key === this.key ? this.followed.job : "");
  private leave: (() => void) | undefined;

  args(): string[] {
    return [
      "plan",
      ...settings.step_args(base.stack),
      ...results.device_args(),
      "--pareto",
      ...(this.approximate ? ["--allow-approximating"] : []),
      "--json",
    ];
  }
  private key_of(args: string[]) {
    return JSON.stringify([project.edition, project.drafts(), args]);
  }
  // A curve of the same question that was asked before, by this page or another, of the same files.
  async recall() {
    const args = JSON.stringify(this.args()),
      key = this.key;
    if (this.curves[key]) return;
    try {
      const since = await this.files_since();
      const old = (await api.list_jobs()).filter((j) => JSON.stringify(j.args) === args && j.started > since).at(-1);
      if (key !== this.key || (await needed_by(this.args())).length > 0) return; // jobs are of saved files
      if (old?.state === "running") this.follow(old, key);
      else if (old?.state === "done") this.put(key, (await api.read_job(old.id)).result?.points ?? []);
    } catch {
      /* the server is gone, which the page says elsewhere */
    }
  }
  // When the last of the files was written that the question may be about; a preset without functors of the folder is about none.
  private async files_since(): Promise<number> {
    const of_folder =
      settings.file() !== "" || /\.(functor|optimizer)\b/.test(`${settings.stack} ${settings.optimizer}`);
    if (!of_folder) return 0;
    return Math.max(0, ...(await api.list_files()).filter((f) => is_source(f.path)).map((f) => f.modified));
  }
  async run() {
    const args = this.args(),
      key = this.key;
    this.refusal = "";
    try {
      this.follow({ id: (await api.start_job(args)).id, args, state: "running", started: Date.now() / 1000 }, key);
    } catch (e) {
      this.refusal = (e as Error).message;
    }
  }
  private follow(job: api.Job, key: string) {
    if (this.followed.job === job.id) return;
    this.leave?.();
    this.followed = { job: job.id, key };
    this.since = job.started * 1000;
    this.said = "";
    let last = "";
    this.leave = jobs.listen(job.id, 0, (e) => {
      if (e.kind === "err") this.said = last = e.text ?? "";
      if (e.kind !== "state" || e.state === "running") return;
      this.leave?.();
      this.followed = { job: "", key: "" };
      if (e.state === "done") void api.read_job(job.id).then((j) => this.put(key, j.result?.points ?? []));
      else if (e.state === "failed") this.refusal = last.replace(/^adjoint: /, "") || "the curve could not be made";
    });
  }
  private put(key: string, points: Point[]) {
    this.curves = { ...this.curves, [key]: points };
  }
  stop() {
    if (this.job) void api.stop_job(this.job);
  }
}
export const pareto = new Pareto();
