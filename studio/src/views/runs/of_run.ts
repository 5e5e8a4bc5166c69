// A run as its folder tells it: run.json, the model's text as it was when the run began, and copies of the functors, schedules and
// the optimizer that came from files.
import * as api from "../../api/client";

export interface Options {
  batch: number;
  seq: number;
  context: number;
  steps: number;
  stack: string;
  optimizer: string;
  clip: number;
  set?: Record<string, number>;
  ranks: number;
  threads: number;
  device: string;
  deterministic: boolean;
  [more: string]: any;
}
export interface About {
  options: Options;
  preset?: string;
  peak_bytes?: number; // that the plan of its step needs
  history?: { step: number; changed: Record<string, { was: any; is: any }> }[]; // of resumes with other options, the oldest first
}

// How many tokens a run has trained on after a step. Resumes may have changed the batch or its length; steps before are as they were.
export function tokens_after({ options, history = [] }: About): (step: number) => number {
  const per_step = (o: Partial<Options>) => (o.batch ?? 0) * (o.seq || o.context || 1);
  const pieces: { from: number; per_step: number }[] = [];
  let then: Partial<Options> = options;
  for (const { step, changed } of [...history].reverse()) {
    pieces.unshift({ from: step, per_step: per_step(then) });
    then = { ...then, ...Object.fromEntries(Object.entries(changed).map(([name, { was }]) => [name, was])) };
  }
  pieces.unshift({ from: 0, per_step: per_step(then) });
  return (step) =>
    pieces.reduce((sum, p, i) => {
      const until = Math.min(step, pieces[i + 1]?.from ?? step);
      return sum + Math.max(0, until - p.from) * p.per_step;
    }, 0);
}

// The run's stack and optimizer name the copies as its folder sees them.
const stack_of = (path: string, stack: string) =>
  stack
    .replace(/(^|\|\s*)(functors\/)/g, `$1${path}/$2`)
    .replace(/"(schedules\/[^"]*\.schedule")/g, (_, copy) => `"${path}/${copy}`);
const optimizer_of = (path: string, optimizer: string) =>
  optimizer.replace(/^run\.optimizer\b/, `${path}/run.optimizer`);

// Tokens of the run's vocabulary, to which the model's is set; 0 where the data are token ids, or it cannot be told.
async function vocab_of(path: string, set: Record<string, number>): Promise<number> {
  if (set.vocab) return set.vocab;
  const flags = ["--tokenizer", `${path}/tokenizer.json`];
  const answer = await api.ask<{ kind: string; vocab: number }>(["tokenizer", "info", ...flags]);
  return answer.ok && answer.result.kind !== "ids" ? answer.result.vocab : 0;
}
// The flags with which `verify` and `profile` are about the model and the step that the run has trained.
function step_args(path: string, { options: o, preset }: About): string[] {
  const { vocab: _, ...set } = o.set ?? {};
  return [
    "--model",
    `${path}/model.scheme${preset ? `:${preset}` : ""}`,
    ...Object.entries(set).flatMap(([k, v]) => ["--set", `${k}=${v}`]),
    ...(o.stack ? ["--stack", stack_of(path, o.stack)] : []),
    "--optimizer",
    optimizer_of(path, o.optimizer),
    "--clip",
    String(o.clip),
    ...(o.device === "cuda" ? ["--device", o.device] : []),
    ...(o.ranks > 1 ? ["--ranks", String(o.ranks)] : []),
    ...(o.threads ? ["--threads", String(o.threads)] : []),
  ];
}
export async function verify_args(path: string, about: About): Promise<string[]> {
  const vocab = await vocab_of(path, about.options.set ?? {});
  // A setting that the model does not have is refused.
  const has = vocab > 0 && /^axes\b.*\bvocab\b/m.test((await api.read_file(`${path}/model.scheme`)).text);
  return ["verify", ...step_args(path, about), ...(has ? ["--set", `vocab=${vocab}`] : [])];
}
export async function profile_args(path: string, about: About): Promise<string[]> {
  const o = about.options,
    vocab = await vocab_of(path, o.set ?? {});
  return [
    "profile",
    ...step_args(path, about),
    ...(vocab ? ["--vocab", String(vocab)] : []),
    "--batch",
    String(o.batch),
    ...(o.seq ? ["--seq", String(o.seq)] : []),
    ...(o.context ? ["--context", String(o.context)] : []),
    ...(o.deterministic ? ["--deterministic"] : []),
    "--out",
    `${path}-profile`,
  ];
}
