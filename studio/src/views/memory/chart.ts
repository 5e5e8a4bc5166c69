// A step's memory over its calls, as stacked areas: geometry alone. Calls are moments: the body runs once per part of the batch, so a
// place of the plan's order may have several. Bytes, owners and products are of places.
import type { Factor, Timeline } from "../../api/json";

export const categories = ["parameters", "optimizer_state", "gradients", "activations", "workspace", "other", "gaps"];
export const colours: Record<string, string> = {
  parameters: "var(--orange)",
  optimizer_state: "var(--purple)",
  gradients: "var(--vermillion)",
  activations: "var(--blue)",
  workspace: "var(--sky)",
  other: "var(--faint)",
  gaps: "var(--rule-strong)",
};
export const colour_of = (category: string) => colours[category] ?? "var(--green)";
export const name_of = (category: string) => category.replaceAll("_", " ");

export interface Scale {
  x: (moment: number) => number;
  y: (bytes: number) => number;
  moment_at: (x: number) => number;
  w: number;
  h: number;
  most: number;
}

// Per place, the moments at which its call runs: one, or one per part.
export function moments_of(t: Timeline): Map<number, number[]> {
  const found = new Map<number, number[]>();
  t.calls.forEach((c, moment) => {
    const known = found.get(c.place);
    if (known) known.push(moment);
    else found.set(c.place, [moment]);
  });
  return found;
}
// Moments, from first to last included, whose calls have these places: what lives inside of the body does so in every part.
export function stretches_of(t: Timeline, from: number, to: number): { first: number; last: number }[] {
  const found: { first: number; last: number }[] = [];
  t.calls.forEach((c, moment) => {
    if (c.place < from || c.place > to) return;
    const open = found.at(-1);
    if (open && open.last === moment - 1) open.last = moment;
    else found.push({ first: moment, last: moment });
  });
  return found;
}
// The first moment at the peak; a peak behind the last call is at the last.
export function peak_moment(t: Timeline): number {
  const found = t.calls.findIndex((c) => c.place === t.peak_at);
  return found >= 0 ? found : Math.max(0, t.calls.length - 1);
}
// The most bytes that are alive at any place, without those of some categories.
function largest(t: Timeline, without: string[]): number {
  const counted = Object.entries(t.live).filter(([c]) => !without.includes(c));
  let most = 0;
  for (const { place } of t.calls) {
    let sum = 0;
    for (const [, live] of counted) sum += live[place] ?? 0;
    most = Math.max(most, sum);
  }
  return most;
}
// Where seconds are known, time is what runs along.
export function scale_of(t: Timeline, w: number, h: number, by_seconds: boolean, without: string[] = []): Scale {
  const n = Math.max(1, t.calls.length),
    most = Math.max(1, without.length === 0 ? Math.max(t.arena_bytes, t.peak_bytes) : largest(t, without) * 1.04);
  const starts =
    by_seconds && t.in_seconds
      ? t.calls.map((c) => c.begins / Math.max(1e-12, t.length))
      : t.calls.map((_, i) => i / n);
  starts.push(1);
  return {
    w,
    h,
    most,
    x: (moment) => (starts[Math.max(0, Math.min(n, moment))] ?? 1) * w,
    y: (bytes) => h - (bytes / most) * h,
    moment_at: (x) => {
      let low = 0,
        high = n - 1;
      const f = x / w;
      while (low < high) {
        const mid = (low + high + 1) >> 1;
        if (starts[mid] <= f) low = mid;
        else high = mid - 1;
      }
      return low;
    },
  };
}
export function areas(t: Timeline, s: Scale, without: string[] = []): { category: string; d: string }[] {
  const n = t.calls.length,
    base = new Float64Array(n),
    out: { category: string; d: string }[] = [];
  const known = Object.keys(t.live).filter((c) => !without.includes(c)),
    order = [...categories.filter((c) => known.includes(c)), ...known.filter((c) => !categories.includes(c))];
  for (const category of order) {
    const live = t.live[category];
    let top = "",
      bottom = "",
      any = false;
    for (let i = 0; i < n; i++) {
      const from = s.x(i).toFixed(1),
        to = s.x(i + 1).toFixed(1),
        low = s.y(base[i]).toFixed(1),
        here = live[t.calls[i].place] ?? 0,
        high = s.y(base[i] + here).toFixed(1);
      if (here > 0) any = true;
      top += `${i === 0 ? "M" : "L"}${from} ${high}L${to} ${high}`;
      bottom = `L${to} ${low}L${from} ${low}${bottom}`;
    }
    for (let i = 0; i < n; i++) base[i] += live[t.calls[i].place] ?? 0;
    if (any) out.push({ category, d: `${top}${bottom}Z` });
  }
  return out;
}
// As many labels as fit, in a few lanes: the largest first.
export function fit_labels<T extends { x: number; width: number; weight: number }>(
  labels: T[],
  lanes: number,
  w: number,
): (T & { lane: number })[] {
  const taken: [number, number][][] = Array.from({ length: lanes }, () => []),
    out: (T & { lane: number })[] = [];
  for (const l of [...labels].sort((a, b) => b.weight - a.weight)) {
    const from = Math.max(0, Math.min(w - l.width, l.x - l.width / 2)),
      to = from + l.width;
    const lane = taken.findIndex((row) => row.every(([a, b]) => to + 8 < a || from > b + 8));
    if (lane < 0) continue;
    taken[lane].push([from, to]);
    out.push({ ...l, x: from, lane });
  }
  return out;
}
// "x * ch^2 * t^3" as its factors.
export function compact(product: string): Factor[] {
  return product.split(" * ").map((f) => {
    const [letter, power] = f.split("^");
    return { letter, bytes: 0, ...(power && { power: Number(power) }) };
  });
}
