// What a drawing is put together from, and how large it is. A piece is the drawing of a box by itself; a unit is one thing in it, with
// the ports at which lines end and begin.
import { bytes, short_type } from "../state/format";
import type { ArrangeNode } from "./arrange";
import type { Item, Line } from "./drawing";
import { width } from "./measure";
import type { Tree, TreeNode } from "./tree";

export const point_line = 7,
  arrow_line = 24,
  arrow_height = 40,
  title_height = 30,
  inset = 16;

export interface Spot {
  x: number;
  y: number;
}
export interface Piece {
  w: number;
  h: number;
  ins: Map<number, Spot>;
  outs: Map<number, Spot>;
  items: Item[];
  lines: Line[];
  joins: [string, string][];
}
export interface Unit extends ArrangeNode {
  make: (x: number, y: number) => Item | null;
  piece?: Piece;
  line: number;
  key: string;
  reach: (x: number, side: "in" | "out") => number;
  object?: number;
  ins_of: Map<number, number>;
  outs_of: Map<number, number>;
}

export function point_lines(tree: Tree, o: number, axis_names: boolean): string[] {
  const object = tree.scheme.objects[o];
  return [short_type(object, axis_names), bytes(object.bytes)];
}
export function point_size(name: string, lines: string[]): { w: number; h: number } {
  return {
    w: Math.ceil(Math.max(width(name, "name"), ...lines.map((l) => width(l, "type")), 12)) + 6,
    h: 14 + (name ? 17 : 2) + lines.length * 12.5,
  };
}
export function arrow_label(node: TreeNode, tree: Tree): { name: string; op: string; power?: number } {
  if (node.kind === "repeat") return { name: node.name, op: "", power: node.boxes.length };
  if (node.kind === "box") return { name: node.name.replace(/#\d+$/, ""), op: "" };
  const op = tree.scheme.morphisms[node.morphism].op,
    name = node.name.replace(/#\d+$/, "");
  return name === op ? { name: op, op: "" } : { name, op };
}
const power_text = (n?: number) => (n === undefined ? "" : String(n));
export function arrow_width(label: { name: string; op: string; power?: number }): number {
  return (
    Math.ceil(
      Math.max(
        width(label.name, "label") + (label.power ? width(power_text(label.power), "sub") + 3 : 0),
        width(label.op, "sub"),
      ),
    ) + 20
  );
}

export function place(piece: Piece, dx: number, dy: number, items: Item[], lines: Line[]) {
  for (const i of piece.items) items.push({ ...i, x: i.x + dx, y: i.y + dy });
  for (const l of piece.lines)
    lines.push({
      ...l,
      points: l.points.map(([x, y]) => [x + dx, y + dy]),
      x0: l.x0 + dx,
      x1: l.x1 + dx,
      y0: l.y0 + dy,
      y1: l.y1 + dy,
    });
}
