// The server's interface, one function each. Every address is relative, for the token stands before all of them.

export interface Mistake {
  message: string;
  file?: string;
  line?: number;
  column?: number;
}
export type Answer<T> =
  | { ok: true; result: T; seconds: number; notes?: string[] } // notes: what the command said beside its answer, warnings too
  | { ok: false; code: number; cancelled?: boolean; lost?: boolean; later?: boolean; error: Mistake };
// No answer to keep: the question was given up, the server is gone, or it could not ask the command and may be able to later.
export const unanswered = (a: Answer<unknown>) => !a.ok && (a.cancelled || a.lost || a.later) === true;

export interface FileEntry {
  path: string;
  kind: string;
  bytes: number;
  modified: number;
}
export interface Job {
  id: string;
  args: string[];
  state: "running" | "done" | "failed" | "stopped";
  started: number;
  ended?: number | null;
  code?: number | null;
  folder?: string | null;
  events?: number;
  result?: any;
}
export interface JobEvent {
  n: number;
  kind: "out" | "err" | "metrics" | "state";
  text?: string;
  progress?: boolean;
  line?: { step: number; [key: string]: unknown };
  state?: Job["state"];
  code?: number;
}
export interface Run {
  path: string;
  model?: string;
  step?: number;
  steps?: number;
  loss?: number | null;
  val_loss?: number | null;
  stack?: string;
  modified?: number;
  live?: boolean; // some process writes to it
}

// A request that the server did not answer as it promised.
export class ServerError extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

async function request(path: string, init?: RequestInit): Promise<Response> {
  const response = await fetch(path, init);
  if (response.ok) return response;
  const text = await response.text();
  let message = text;
  try {
    message = JSON.parse(text).error?.message ?? JSON.parse(text).error ?? text;
  } catch {
    /* it was a sentence */
  }
  throw new ServerError(message || `the server answered ${response.status}`, response.status);
}
const get = async <T>(path: string): Promise<T> => (await request(path)).json();
const send = async <T>(method: string, path: string, body: unknown, signal?: AbortSignal): Promise<T> =>
  (
    await request(path, { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal })
  ).json();

// Lanes are the server's, and all tabs speak to it: a lane is that of one page.
const page_id = Math.random().toString(36).slice(2, 10);
export interface AskOptions {
  drafts?: Record<string, string>;
  stdin?: string;
  lane?: string;
  signal?: AbortSignal;
}

const latest = new Map<string, number>(); // of each lane how often it was asked
// Runs a command and gives what it printed as JSON. It never throws: a server that is gone is an answer, too. A question that the
// server ended for another of its lane, though none was asked after it (two that overtook each other), is asked again.
export async function ask<T>(args: string[], options: AskOptions = {}): Promise<Answer<T>> {
  const { signal, lane, ...rest } = options,
    mine = lane === undefined ? 0 : (latest.get(lane) ?? 0) + 1;
  if (lane !== undefined) latest.set(lane, mine);
  const body = { args, ...rest, lane: lane === undefined ? undefined : `${page_id}:${lane}` };
  for (let tries = 3; ; tries--) {
    const answer = await ask_once<T>(body, signal);
    const ended = !answer.ok && answer.cancelled && !signal?.aborted;
    if (!ended || lane === undefined || latest.get(lane) !== mine || tries === 0) return answer;
  }
}
async function ask_once<T>(body: object, signal: AbortSignal | undefined): Promise<Answer<T>> {
  try {
    return await send<Answer<T>>("POST", "api/ask", body, signal);
  } catch (e) {
    if (e instanceof DOMException && e.name === "AbortError")
      return { ok: false, code: -1, cancelled: true, error: { message: "cancelled" } };
    if (e instanceof ServerError)
      return { ok: false, code: -1, later: ![400, 413, 415].includes(e.status), error: { message: e.message } };
    return {
      ok: false,
      code: -1,
      lost: true,
      error: { message: "The studio's server does not answer. What you typed is still here." },
    };
  }
}

export const hello = () =>
  get<{
    version: string;
    folder: { name: string; path: string };
    cores?: number;
    device?: string;
    [more: string]: unknown;
  }>("api/hello");
export const list_files = async () => (await get<{ files: FileEntry[] }>("api/files")).files;
export const read_file = (path: string) =>
  get<{ path: string; text: string; etag: string }>(`api/file?path=${encodeURIComponent(path)}`);
export const write_file = (path: string, text: string, etag: string | null) =>
  send<{ etag: string }>("PUT", "api/file", { path, text, etag });
export const rename_file = (from: string, to: string) => send<unknown>("POST", "api/rename", { from, to });
export const delete_file = (path: string, etag: string) => send<unknown>("POST", "api/delete", { path, etag });

export const start_job = (args: string[]) => send<{ id: string }>("POST", "api/jobs", { args });
export const read_job = (id: string) => get<Job>(`api/jobs/${id}`);
export const list_jobs = async () => (await get<{ jobs: Job[] }>("api/jobs")).jobs;
// What a job has said from event N on; it does not wait for more.
export async function job_events(id: string, from: number): Promise<JobEvent[]> {
  const text = await (await request(`api/jobs/${id}/events?from=${from}&wait=0`)).text();
  return text.split("\n").flatMap((line) => (line.startsWith("data: ") ? [JSON.parse(line.slice(6))] : []));
}
export const stop_job = (id: string) => send<unknown>("POST", `api/jobs/${id}/stop`, {});
export const list_runs = async () => (await get<{ runs: Run[] }>("api/runs")).runs;
export const run_metrics = (path: string, from: number) =>
  get<{ lines: { step: number; [key: string]: unknown }[]; from: number; next: number }>(
    `api/runs/metrics?path=${encodeURIComponent(path)}&from=${from}`,
  );

// A stream of events that comes back by itself; `opened` is told each time. `lost` is told when nothing was heard for a while
// (heartbeats come every 5 s).
export function listen(
  path: string,
  on: { event: (e: any) => void; opened?: () => void; lost?: (lost: boolean) => void },
): () => void {
  let source: EventSource | undefined,
    silence: ReturnType<typeof setTimeout> | undefined,
    closed = false;
  const heard = () => {
    on.lost?.(false);
    clearTimeout(silence);
    silence = setTimeout(() => {
      on.lost?.(true);
      source?.close();
      open();
    }, 12_000);
  };
  const open = () => {
    if (closed) return;
    source = new EventSource(path);
    source.onopen = () => {
      heard();
      on.opened?.();
    };
    source.onmessage = (m) => {
      heard();
      try {
        on.event(JSON.parse(m.data));
      } catch {
        /* a heartbeat */
      }
    };
    source.onerror = () => {
      on.lost?.(true);
      if (source?.readyState === EventSource.CLOSED) {
        clearTimeout(silence);
        silence = setTimeout(open, 1500);
      }
    };
  };
  open();
  return () => {
    closed = true;
    clearTimeout(silence);
    source?.close();
  };
}
