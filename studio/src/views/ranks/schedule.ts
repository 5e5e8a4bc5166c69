// A pipeline's schedule as the plan gives it: what every stage does when, and when it waits.
import type { Factor, MemoryStates } from "../../api/json";

export interface Slot {
  slot: string;
  part: number;
  chunk: number;
  begin_s: number;
  end_s: number;
  calls?: string[];
}
export interface Stage {
  busy_s: number;
  bytes: number;
  host_bytes: number;
  in_flight: number;
  params: number;
  sent_bytes: number;
  outside: { begin_s: number; end_s: number }[]; // preparation before the first slot, update behind the last
  slots?: Slot[];
}
export interface Pipeline {
  bubble: number;
  chunks: number;
  parts: number;
  schedule: string;
  seconds: number;
  step_s?: number;
  message_s: number;
  waited_s?: number; // of the messages
  stages: Stage[];
}

export const kinds = [
  { letter: "F", name: "forward", colour: "var(--blue)" },
  { letter: "B", name: "backward", colour: "var(--orange)" },
  { letter: "W", name: "weights' gradients", colour: "var(--green)" },
];
export const letter_of = (s: Slot) => s.slot[0];
export const colour_of = (s: Slot) => kinds.find((k) => k.letter === letter_of(s))?.colour ?? "var(--faint)";
export const name_of = (s: Slot) => kinds.find((k) => k.letter === letter_of(s))?.name ?? "slot";
// "F3", or "F3.1" where a stage has several chunks.
export const short_name = (s: Slot, chunks_per_stage: number) =>
  chunks_per_stage > 1 ? `${letter_of(s)}${s.part}.${s.chunk}` : `${letter_of(s)}${s.part}`;

const same = (a: string) => /^([A-Z])(\d+)(?:\.(\d+))?$/.exec(a);
// What is alive on a rank after its i-th slot; lists of both commands are in the same order, and names are compared to be sure.
export function states_after(states: MemoryStates | null, stage: number, i: number, slot: Slot) {
  const found = states?.ranks?.[stage]?.slots[i],
    name = found && same(found.slot);
  return found && name && name[1] === letter_of(slot) && Number(name[2]) === slot.part ? found : undefined;
}
// The time before a slot that belongs to none, and what it was: before the first a stage prepares, and may wait as well.
export function before_slot(p: Pipeline, stage: number, i: number): { seconds: number; what: string } {
  const { slots = [], outside = [] } = p.stages[stage] ?? {},
    from = i > 0 ? slots[i - 1].end_s : 0,
    to = slots[i]?.begin_s ?? 0,
    seconds = Math.max(0, to - from),
    work = outside.reduce((n, w) => n + Math.max(0, Math.min(to, w.end_s) - Math.max(from, w.begin_s)), 0);
  const close = 1e-6 * end_of(p);
  return {
    seconds,
    what: work < close ? "waiting" : work < seconds - close ? "preparation and waiting" : "preparation",
  };
}
export const end_of = (p: Pipeline) =>
  Math.max(1e-12, p.step_s ?? 0, p.seconds ?? 0, ...p.stages.flatMap((s) => (s.slots ?? []).map((t) => t.end_s)));

export const outside_of = (stage: Stage) => stage.outside.reduce((n, w) => n + w.end_s - w.begin_s, 0);

// t_8 t_9 t_10 as t^3, for a grid in which there is little room: factors of one letter are equal in bytes.
export function in_powers(factors: Factor[]): Factor[] {
  const out: Factor[] = [];
  for (const f of factors) {
    const known = out.find((o) => o.letter === f.letter);
    if (known) {
      known.power = (known.power ?? 1) + (f.power ?? 1);
      known.bytes += f.bytes;
    } else out.push({ letter: f.letter, power: f.power ?? 1, bytes: f.bytes });
  }
  return out;
}
