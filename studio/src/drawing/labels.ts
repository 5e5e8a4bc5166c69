// Where labels stand that belong to lines: beside their own line, and as far as there is room on no other line, label or arrow.
import type { Drawing, Words } from "./drawing";
import { width } from "./measure";

export interface Wish {
  key: string;
  text: string;
  points: [number, number][]; // of its line; a label stands beside a part of it that goes down
  side: "left" | "right"; // where it rather stands
  json?: string; // where the program says its number
  free: number; // how far from the line: half as much as it is thick
}
interface Box {
  x: number;
  y: number;
  w: number;
  h: number;
}
const high = 12,
  cell = 160;

// What stands in a part of the drawing is looked up by where it is.
class Grid<T extends Box> {
  private cells = new Map<number, T[]>();
  add(b: T) {
    for (let c = Math.floor(b.x / cell); c <= Math.floor((b.x + b.w) / cell); c++) {
      const all = this.cells.get(c);
      if (all) all.push(b);
      else this.cells.set(c, [b]);
    }
  }
  *over(b: Box): Generator<T> {
    for (let c = Math.floor(b.x / cell); c <= Math.floor((b.x + b.w) / cell); c++)
      for (const o of this.cells.get(c) ?? [])
        if (o.x < b.x + b.w && o.x + o.w > b.x && o.y < b.y + b.h && o.y + o.h > b.y) yield o;
  }
}
// `columns`: where lines will go down that are drawn later.
export function place_labels(d: Drawing, wishes: Wish[], columns: number[] = []) {
  const grid = new Grid<Box & { cost: number }>();
  for (const l of d.lines)
    for (let i = 1; i < l.points.length; i++) {
      const [ax, ay] = l.points[i - 1],
        [bx, by] = l.points[i],
        thick = 2 + (l.thick ?? 1) / 2;
      const box = { x: Math.min(ax, bx) - thick, y: Math.min(ay, by) - thick };
      grid.add({ ...box, w: Math.abs(ax - bx) + 2 * thick, h: Math.abs(ay - by) + 2 * thick, cost: 4 });
    }
  for (const i of d.items)
    if (i.kind === "words") {
      const w = width(i.text, i.face);
      grid.add({ x: i.anchor === "end" ? i.x - w : i.x, y: i.y - high, w, h: high + 3, cost: 12 });
    } else grid.add({ x: i.x, y: i.y, w: i.w, h: i.h, cost: 12 });
  for (const x of columns) grid.add({ x: x - 2, y: 0, w: 4, h: d.h, cost: 1 });
  for (const wish of wishes) {
    const w = width(wish.text, "sub");
    let best: { box: Box; anchor: Words["anchor"]; cost: number } | null = null;
    for (let i = 1; i < wish.points.length; i++) {
      const [x, ay] = wish.points[i - 1],
        [bx, by] = wish.points[i];
      if (Math.abs(x - bx) > 1) continue;
      const top = Math.min(ay, by) + 4,
        room = Math.abs(ay - by) - high - 8;
      for (let down = 0; down <= Math.max(0, room); down += high + 1)
        for (const side of ["left", "right"] as const) {
          const box = { x: side === "left" ? x - wish.free - w : x + wish.free, y: top + down, w, h: high };
          let cost = (side === wish.side ? 0 : 0.5) + down / 200 + i / 10;
          for (const o of grid.over(box)) cost += o.cost;
          if (!best || cost < best.cost) best = { box, anchor: side === "left" ? "end" : "start", cost };
        }
    }
    if (!best) continue;
    const { box, anchor } = best;
    grid.add({ ...box, x: box.x - 3, w: box.w + 6, cost: 12 });
    d.items.push({
      kind: "words",
      key: wish.key,
      x: anchor === "end" ? box.x + w : box.x,
      y: box.y + high - 2,
      w,
      h: high,
      text: wish.text,
      json: wish.json,
      face: "sub",
      anchor,
      frame: "",
    });
  }
}
