// Round numbers along an axis.
export function ticks(low: number, high: number, about: number): number[] {
  const rough = (high - low) / Math.max(1, about),
    power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough) ?? rough,
    out: number[] = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) out.push(v);
  return out;
}
// The same in the units in which bytes are written.
export function round_bytes(low: number, high: number, about: number): number[] {
  const unit = Math.pow(1024, Math.max(0, Math.floor(Math.log(Math.max(1, high)) / Math.log(1024))));
  return ticks(low / unit, high / unit, about).map((t) => t * unit);
}
