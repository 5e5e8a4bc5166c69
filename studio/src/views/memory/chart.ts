// A step's memory over its calls, as stacked areas: geometry alone.
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
  x: (place: number) => number;
  y: (bytes: number) => number;
  place_at: (x: number) => number;
  w: number;
  h: number;
  most: number;
}

// The most bytes that are alive at any call, without those of some categories.
function largest(t: Timeline, without: string[]): number {
  const counted = Object.entries(t.live).filter(([c]) => !without.includes(c));
  let most = 0;
  for (let i = 0; i < t.calls.length; i++) {
    let sum = 0;
    for (const [, live] of counted) sum += live[i] ?? 0;
    most = Math.max(most, sum);
  }
  return most;
}
// Calls are in the order of their places; where seconds are known, time is what runs along.
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
    x: (place) => (starts[Math.max(0, Math.min(n, place))] ?? 1) * w,
    y: (bytes) => h - (bytes / most) * h,
    place_at: (x) => {
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
        high = s.y(base[i] + (live[i] ?? 0)).toFixed(1);
      if ((live[i] ?? 0) > 0) any = true;
      top += `${i === 0 ? "M" : "L"}${from} ${high}L${to} ${high}`;
      bottom = `L${to} ${low}L${from} ${low}${bottom}`;
    }
    for (let i = 0; i < n; i++) base[i] += live[i] ?? 0;
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
