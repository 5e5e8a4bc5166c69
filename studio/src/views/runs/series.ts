// Metrics of several runs as the columns of one plot.
import type { Line } from "./runs.svelte";

export const colours = ["--blue", "--vermillion", "--green", "--purple", "--orange", "--sky", "--quiet"];
// The eighth run and further ones have the colours again, with dashes.
export const dash_of = (i: number) => (i < colours.length ? [] : i < 2 * colours.length ? [7, 4] : [2, 3]);
export const colour_of = (i: number) => colours[i % colours.length];

// A running mean that forgets by `keep` a step, without the bias of its beginning.
export function smooth(values: (number | null)[], keep: number): (number | null)[] {
  if (keep <= 0) return values;
  let sum = 0,
    weight = 0;
  return values.map((v) => {
    if (v === null || !Number.isFinite(v)) return v;
    sum = keep * sum + (1 - keep) * v;
    weight = keep * weight + (1 - keep);
    return sum / weight;
  });
}
// All places along the x axis, and for each of the columns its values there (undefined where it has none, so that lines go on).
export function join(columns: { x: number[]; y: (number | null)[] }[]): (number | null | undefined)[][] {
  const places = [...new Set(columns.flatMap((c) => c.x))].sort((a, b) => a - b),
    at = new Map(places.map((p, i) => [p, i]));
  return [
    places,
    ...columns.map((c) => {
      const out: (number | null | undefined)[] = new Array(places.length).fill(undefined);
      c.x.forEach((x, i) => {
        out[at.get(x)!] = c.y[i];
      });
      return out;
    }),
  ];
}
// `place` is where a step lies on the x axis.
export function column(lines: Line[], key: string, place: (step: number) => number): { x: number[]; y: number[] } {
  const own = lines.filter((l) => typeof l[key] === "number");
  return { x: own.map((l) => place(l.step)), y: own.map((l) => l[key] as number) };
}
// The last value that is a number: a loss is null where nothing was counted.
export function last_number(lines: Line[], key: string): number | undefined {
  return lines.findLast((l) => typeof l[key] === "number")?.[key] as number | undefined;
}
// The best of what was evaluated by the schedule, as --keep-best has it.
export function best_validation(lines: Line[]): number | undefined {
  const all = lines.flatMap((l) => (typeof l.val_loss === "number" && l.at_stop !== true ? [l.val_loss] : []));
  return all.length > 0 ? all.reduce((least, v) => Math.min(least, v)) : undefined;
}
