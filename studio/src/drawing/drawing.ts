// What a drawing is made of, whoever composed it; Diagram.svelte shows it. Coordinates are absolute; `frame` is the key of the
// innermost frame around a thing, which is not drawn where that frame is too small on the screen.
export interface Point {
  kind: "point";
  key: string;
  x: number;
  y: number;
  w: number;
  h: number; // the box of its texts; the point itself is in the middle of the upper edge
  object: number;
  source: string;
  role: string;
  name: string;
  lines: string[];
  json?: (string | undefined)[]; // of each line: where the program says its number (state/asked.ts)
  mark?: "hatched" | "host" | "mesh";
  frame: string;
}
export interface Arrow {
  kind: "arrow";
  key: string;
  x: number;
  y: number;
  w: number;
  h: number; // the line runs in the middle, the label stands above
  node: "op" | "box" | "repeat";
  source: string;
  morphism?: number;
  name: string;
  op: string;
  power?: number;
  openable: boolean;
  frame: string;
  shade?: string;
  hatched?: boolean;
  changed?: boolean;
  sources?: string[]; // of several things that are one arrow
}
export interface Frame {
  kind: "frame";
  key: string;
  x: number;
  y: number;
  w: number;
  h: number;
  node: "op" | "box" | "repeat";
  source: string;
  name: string;
  power?: number;
  note: string;
  json?: string; // where the program says the note's number
  text?: string[];
  frame: string;
  morphism?: number;
  variant?: { index: number; of: number };
}
export interface Words {
  kind: "words";
  key: string;
  x: number;
  y: number;
  w: number;
  h: number;
  text: string;
  face: "name" | "sub" | "title";
  anchor?: "start" | "middle" | "end";
  frame: string;
  colour?: string;
  json?: string; // where the program says its number
}
export type Item = Point | Arrow | Frame | Words;
export interface Line {
  key: string;
  points: [number, number][];
  head: boolean;
  object: number;
  source: string;
  frame: string;
  style?: "plain" | "dashed" | "kept" | "again" | "host";
  colour?: string;
  thick?: number;
  said?: string;
  sources?: string[];
  to_key?: string;
  x0: number;
  x1: number;
  y0: number;
  y1: number;
}
export interface Drawing {
  items: Item[];
  lines: Line[];
  w: number;
  h: number;
  next: Map<string, string[]>;
  back: Map<string, string[]>;
}

export const empty = (): Drawing => ({ items: [], lines: [], w: 0, h: 0, next: new Map(), back: new Map() });
export function line(part: Omit<Line, "x0" | "x1" | "y0" | "y1">): Line {
  const xs = part.points.map((p) => p[0]),
    ys = part.points.map((p) => p[1]);
  return { ...part, x0: Math.min(...xs), x1: Math.max(...xs), y0: Math.min(...ys), y1: Math.max(...ys) };
}
// Corners of an edge are rounded by as much as its shorter side allows.
export function path_of_points(points: [number, number][], radius = 9): string {
  let d = `M${points[0][0]} ${points[0][1]}`;
  for (let i = 1; i < points.length; i++) {
    const [x, y] = points[i];
    if (i === points.length - 1) {
      d += `L${x} ${y}`;
      break;
    }
    const [px, py] = points[i - 1],
      [nx, ny] = points[i + 1];
    const before = Math.hypot(x - px, y - py),
      after = Math.hypot(nx - x, ny - y),
      r = Math.min(radius, before / 2, after / 2);
    if (r < 0.5) {
      d += `L${x} ${y}`;
      continue;
    }
    d += `L${x - ((x - px) / before) * r} ${y - ((y - py) / before) * r}Q${x} ${y} ${x + ((nx - x) / after) * r} ${y + ((ny - y) / after) * r}`;
  }
  return d;
}
export function join(drawing: Drawing, from: string, to: string) {
  drawing.next.set(from, [...(drawing.next.get(from) ?? []), to]);
  drawing.back.set(to, [...(drawing.back.get(to) ?? []), from]);
}
// The object of the line that ends at a thing and comes nearest to a place. Lines of one call end in one point, so that the corner
// before the end counts as well.
export function nearest_input(drawing: Drawing, key: string, x: number, y: number): number | null {
  let best: number | null = null,
    least = Infinity;
  for (const l of drawing.lines) {
    if (l.to_key !== key || l.object < 0) continue;
    const corners = l.points.slice(-3),
      end = corners.length - 1;
    const last = distance_to(corners[end - 1], corners[end], x, y),
      before = end > 1 ? distance_to(corners[end - 2], corners[end - 1], x, y) : last;
    if (last + 0.5 * before >= least) continue;
    least = last + 0.5 * before;
    best = l.object;
  }
  return best;
}
// The line that comes nearest to a place, of those that come as near as this.
export function nearest_line(drawing: Drawing, x: number, y: number, near: number): Line | null {
  let best: Line | null = null,
    least = near;
  for (const l of drawing.lines) {
    if (x < l.x0 - least || x > l.x1 + least || y < l.y0 - least || y > l.y1 + least) continue;
    for (let i = 1; i < l.points.length; i++) {
      const far = distance_to(l.points[i - 1], l.points[i], x, y);
      if (far > least) continue;
      least = far;
      best = l;
    }
  }
  return best;
}
function distance_to([ax, ay]: [number, number], [bx, by]: [number, number], x: number, y: number): number {
  const dx = bx - ax,
    dy = by - ay,
    length = dx * dx + dy * dy;
  const t = length === 0 ? 0 : Math.max(0, Math.min(1, ((x - ax) * dx + (y - ay) * dy) / length));
  return Math.hypot(ax + t * dx - x, ay + t * dy - y);
}
