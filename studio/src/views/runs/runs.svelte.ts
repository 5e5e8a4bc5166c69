// Runs that are looked at: their metrics as they come, and the console of one job. Everything is read from the server, so another
// page, or this one after a reload, sees the same; which runs are picked is this browser's.
import * as api from "../../api/client";
import { jobs } from "../../state/jobs.svelte";
import { recall, remember } from "../../state/store";
import type { About } from "./of_run";

// A line of metrics.jsonl: numbers, null where there is none, and what --norms adds.
export interface Line {
  step: number;
  [key: string]: unknown;
}
interface Known {
  lines: Line[];
  next: number;
}
export interface Said {
  kind: "out" | "err";
  text: string;
  progress: boolean;
}

interface Remembered {
  picked: string[];
  job: string;
  refusals: string[];
}
class Runs {
  picked = $state<string[]>([]);
  metrics = $state.raw<Record<string, Line[]>>({});
  about = $state.raw<Record<string, About>>({}); // their run.json
  job = $state(""); // whose console is shown
  said = $state.raw<Said[]>([]);
  // What a button has started last, by what it is of: a run's folder, or "" for the present model and stack.
  asked = $state<Record<string, { what: string; since: number; job: string }>>({});
  // What the form had when its Start was pressed, until that begins, and the folder of a run of which that is not known yet.
  typed = $state.raw<{ values: Record<string, string>; name: string } | null>(null);
  starting = $state("");
  refused = $state.raw<{ out: string; why: string } | null>(null); // a run that was started from the form and never began
  private refusals = $state.raw<string[]>([]); // jobs of such runs, which the list of jobs leaves out: the form has said why
  private known = new Map<string, Known>();
  private reading = new Set<string>();
  private leave: (() => void) | undefined;
  private recalled = false;

  // What was looked at in this folder; read once, when the view of runs is first shown.
  recall() {
    if (this.recalled) return;
    this.recalled = true;
    const was = recall<Partial<Remembered>>("runs");
    this.picked = was?.picked ?? [];
    this.job = was?.job ?? "";
    this.refusals = was?.refusals ?? [];
  }
  private remember() {
    const { picked, job, refusals } = this;
    remember("runs", { picked, job, refusals } satisfies Remembered);
  }
  // A server that was started anew counts its jobs from 1 again.
  private name_of = (job: api.Job) => `${job.id} of ${job.started}`;
  was_refused(job: api.Job): boolean {
    return this.refusals.includes(this.name_of(job));
  }

  pick(path: string, on: boolean) {
    this.picked = on ? [...this.picked.filter((p) => p !== path), path] : this.picked.filter((p) => p !== path);
    this.remember();
    void this.read();
  }
  running(path: string): api.Job | undefined {
    return jobs.jobs.findLast((j) => j.state === "running" && j.folder === path && j.args[0] === "train");
  }

  // Lines of the picked runs that are new since the last time.
  async read() {
    await Promise.all(
      this.picked.map(async (path) => {
        if (this.reading.has(path)) return;
        this.reading.add(path);
        try {
          if (!this.about[path]) void this.read_about(path);
          for (;;) {
            const was = this.known.get(path) ?? { lines: [], next: 0 };
            const { lines, from, next } = await api.run_metrics(path, was.next);
            const kept = from < was.next ? [] : was.lines;
            if (lines.length === 0) break;
            // A run that went back to a save says some steps again: what it said the first time is not its history.
            const first = lines[0].step;
            let all = kept.length > 0 && first <= (kept.at(-1)?.step ?? 0) ? kept.filter((l) => l.step < first) : kept;
            all = [...all, ...lines];
            // A run may have been resumed with other options, which run.json has before the first of these lines.
            await this.read_about(path);
            this.known.set(path, { lines: all, next });
            this.metrics = { ...this.metrics, [path]: all };
            if (next <= was.next) break;
          }
        } catch {
          /* gone, or the server is: the page says so */
        } finally {
          this.reading.delete(path);
        }
      }),
    );
  }
  // What the list of runs says of those whose run.json is known: where that changes, it is read again.
  private listed = new Map<string, string>();
  look_again() {
    for (const { path, steps, modified } of jobs.runs) {
      const now = `${steps} ${modified}`;
      if (this.about[path] && this.listed.get(path) !== now) void this.read_about(path);
      this.listed.set(path, now);
    }
  }
  async read_about(path: string): Promise<About | undefined> {
    try {
      const { text } = await api.read_file(`${path}/run.json`);
      const about = JSON.parse(text);
      if (about.options) this.about = { ...this.about, [path]: about };
    } catch {
      /* a run that has not begun */
    }
    return this.about[path];
  }
  forget(path: string) {
    this.known.delete(path);
    const { [path]: _, ...rest } = this.metrics,
      { [path]: __, ...about } = this.about;
    this.metrics = rest;
    this.about = about;
  }

  // Starts a command; its console is shown, and a run that trains is picked.
  async start(args: string[]): Promise<string> {
    const { id } = await api.start_job(args);
    const out = args[0] === "train" ? args[args.indexOf("--out") + 1] : undefined;
    // Its job is in the list before it is picked: what is picked and in no list is dropped.
    await jobs.refresh();
    if (out) {
      if (!args.includes("--resume")) this.forget(out);
      this.pick(out, true);
    }
    this.show(id);
    return id;
  }
  // The same for a button with a place for its result: what is asked is said there before the server has answered.
  async start_of(of: string, what: string, args: string[] | Promise<string[]>) {
    const mine = (this.asked[of] = { what, since: Date.now(), job: "" });
    try {
      const job = await this.start(await args);
      if (this.asked[of]?.since === mine.since) this.asked[of] = { ...mine, job };
    } catch (e) {
      delete this.asked[of];
      throw e;
    }
  }
  // Whether a run that was just started begins: it does with its first step, or when the server has a run there that is not the one
  // that was there before. One that ends earlier leaves nothing, and why is said by the form.
  async begins(id: string, out: string, before?: number): Promise<boolean> {
    this.refused = null;
    let last = "",
      stepped = false,
      ended: api.Job["state"] | undefined;
    const there = () => jobs.runs.some((r) => r.path === out && r.modified !== before);
    await new Promise<void>((done) => {
      const leave = jobs.listen(id, 0, (e) => {
        if (e.kind === "err" && !e.progress) last = e.text || last;
        if (e.kind === "metrics") stepped = true;
        if (e.kind === "state" && e.state !== "running") ended = e.state;
        if (stepped || ended) known();
      });
      const watch = $effect.root(() => {
        $effect(() => {
          if (there()) known();
        });
      });
      function known() {
        leave();
        watch();
        done();
      }
    });
    if (ended) await jobs.refresh();
    const began = stepped || ended === "done" || there();
    if (ended === "failed" && !began) {
      this.refused = { out, why: last.replace(/^adjoint(?: \w+)?: /, "") || "it failed and did not say why" };
      const job = jobs.jobs.find((j) => j.id === id);
      if (job) this.refusals = [...this.refusals.slice(-99), this.name_of(job)];
      this.remember();
    }
    return began;
  }
  // Runs that were picked and are not there: they never began, or their folder was removed.
  drop_ghosts() {
    if (!jobs.known) return;
    const there = (path: string) => jobs.runs.some((r) => r.path === path) || this.running(path);
    if (this.picked.every(there)) return;
    for (const path of this.picked) if (!there(path)) this.forget(path);
    this.picked = this.picked.filter(there);
    this.remember();
  }
  show(id: string) {
    this.leave?.();
    this.leave = undefined;
    this.job = id;
    this.said = [];
    this.remember();
    this.follow();
  }
  // Listens to the console of the shown job: what it said so far, and what it says, also while another view is shown.
  follow() {
    const id = this.job;
    if (this.leave || !jobs.jobs.some((j) => j.id === id)) return;
    this.said = [];
    this.leave = jobs.listen(id, 0, (e) => {
      if (e.kind === "out" || e.kind === "err")
        this.hear({ kind: e.kind, text: e.text ?? "", progress: e.progress === true });
      if (e.kind === "metrics") void this.read();
      if (e.kind === "state" && e.state !== "running") {
        void jobs.refresh();
        void this.read();
      }
    });
  }
  private hear(line: Said) {
    const all =
      this.said.length > 0 && this.said.at(-1)!.progress && this.said.at(-1)!.kind === line.kind
        ? this.said.slice(0, -1)
        : this.said;
    this.said = [...all.slice(-1999), line];
  }
}
export const runs = new Runs();
