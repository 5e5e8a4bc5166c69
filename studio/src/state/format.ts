// How numbers and types are written, everywhere in the page.
import type { Axis } from "../api/json";

// A number is rounded before its unit is chosen, for rounding may make it one of the next unit.
const rounded = (n: number) => Number(n.toPrecision(3));
const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
export function bytes(n: number): string {
  let i = 0;
  while ((i === 0 ? n : Math.round(n)) >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return `${i === 0 ? n : n >= 99.95 ? n.toFixed(0) : n.toFixed(1)} ${units[i]}`;
}
const powers: [number, string][] = [
  [1e21, "Z"],
  [1e18, "E"],
  [1e15, "P"],
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];
export function count(n: number): string {
  const r = rounded(n);
  for (const [p, letter] of powers) if (r >= p) return `${(r / p).toPrecision(3)} ${letter}`;
  return String(n);
}
export function seconds(s: number): string {
  const r = rounded(s);
  if (r >= 7200) return `${(s / 3600).toPrecision(3)} h`;
  if (r >= 100) return `${s.toFixed(0)} s`;
  if (r >= 1) return `${s.toPrecision(3)} s`;
  if (r >= 1e-3) return `${(r * 1e3).toPrecision(3)} ms`;
  return `${(r * 1e6).toPrecision(3)} µs`;
}
export const axis_text = (a: Axis) => (a.name && a.name !== String(a.size) ? `${a.name}=${a.size}` : String(a.size));
// "+54.5%": how far a number is from another.
export function change(now: number, was: number): string {
  const said = (100 * (now / was - 1)).toFixed(1);
  return /^-?0\.0$/.test(said) ? "±0%" : `${said.startsWith("-") ? "" : "+"}${said}%`.replace("-", "−");
}
// "exact", or "exact against accumulate(n=4, tied=apart)" where the law compares with that.
export const law_text = (law: string, against?: string) => (against ? `${law} against ${against}` : law);
// f32[batch=1, seq=1024, hidden=768]
export const type_text = (o: { dtype: string; axes: Axis[] }) => `${o.dtype}[${o.axes.map(axis_text).join(", ")}]`;
// f32[1, 1024, 768], or with names f32[batch, seq, hidden]
export const short_type = (o: { dtype: string; axes: Axis[] }, names = false) =>
  `${o.dtype}[${o.axes.map((a) => (names && a.name ? a.name : String(a.size))).join(", ")}]`;
// Stages are numbered from 0 everywhere; what a functor did says them from 1.
export const from_zero = (did: string) =>
  /\bstage 0\b/.test(did) ? did : did.replace(/\bstage (\d+)/g, (_, n) => `stage ${n - 1}`);
export const path_of = (source: string) => source.split(":")[0];
export const facet_of = (source: string) => source.split(":")[1] ?? "";
// The last part of a path.
export const last_part = (path: string) => path.slice(path.lastIndexOf(".") + 1);
