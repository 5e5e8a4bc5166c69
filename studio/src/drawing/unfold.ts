// A repetition with all its boxes beside each other.
import { line, type Frame } from "./drawing";
import { arrow_label, place, point_line, point_lines, point_size, title_height, type Piece, type Unit } from "./pieces";
import type { RepeatNode, Tree } from "./tree";

// All boxes of a repetition one after the other, in as many rows as make it about as high as wide. What each gives the next stands
// between them; what comes from outside to several runs above each row, what goes outside from several below.
export function unfolded_unit(tree: Tree, c: RepeatNode, units: Unit[], axis_names: boolean, frame: string): Unit {
  const objects = tree.scheme.objects,
    gap = 26,
    margin = 40;
  const between = c.boxes.map((b, l) => b.outputs.filter((o) => c.boxes[l + 1]?.inputs.includes(o)));
  const points = between.map((all) =>
    all.map((o) => {
      const name = objects[o].name ?? "",
        lines = point_lines(tree, o, axis_names).slice(1);
      return { o, name, lines, ...point_size(name, lines) };
    }),
  );
  const widths = units.map((u, l) => u.w + Math.max(0, ...points[l].map((p) => p.w)) + 2 * gap),
    height = Math.max(...units.map((u, l) => Math.max(u.h, points[l].length * 60))) + 44;
  const total = widths.reduce((n, w) => n + w, 0),
    longest = Math.max(...widths),
    row_width = units.length <= 12 && total < 1500 ? total : Math.max(longest, Math.sqrt(total * height * 1.7));
  const piece: Piece = { w: 0, h: 0, ins: new Map(), outs: new Map(), items: [], lines: [], joins: [] };
  let x = margin,
    y = title_height + 14,
    most = 0;
  const at: { x: number; y: number }[] = [];
  units.forEach((u, l) => {
    if (x > margin && x + widths[l] - margin > row_width) {
      x = margin;
      y += height;
    }
    at.push({ x, y: y + (height - 44 - u.h) / 2 });
    x += widths[l];
    most = Math.max(most, x);
  });
  const w = most + margin - gap,
    h = y + height - 10;
  const put = (key: string, pts: [number, number][], head: boolean, o: number) =>
    piece.lines.push(
      line({ key: `${c.key}|${key}`, points: pts, head, object: o, source: objects[o].source, frame: c.key }),
    );
  const port = (u: Unit, of: Map<number, number>, ports: number[], o: number) => ports[of.get(o) ?? 0] ?? u.line;
  units.forEach((u, l) => {
    const p = at[l],
      item = u.make(p.x, p.y);
    if (item) piece.items.push(item);
    if (u.piece) {
      place(u.piece, p.x, p.y, piece.items, piece.lines);
      piece.joins.push(...u.piece.joins);
    }
    points[l].forEach((q, k) => {
      const px = p.x + u.w + gap,
        py = p.y + port(u, u.outs_of, u.outs, q.o) + k * 60,
        next = at[l + 1],
        v = units[l + 1],
        in_y = next.y + port(v, v.ins_of, v.ins, q.o),
        key = tree.object_keys[q.o],
        cx = px + q.w / 2;
      piece.items.push({
        kind: "point",
        key,
        x: px,
        y: py - point_line,
        w: q.w,
        h: q.h,
        object: q.o,
        source: objects[q.o].source,
        role: objects[q.o].role,
        name: q.name,
        lines: q.lines,
        frame: c.key,
      });
      put(
        `${l}>${q.o}`,
        [
          [p.x + u.w, py],
          [cx - 5, py],
        ],
        true,
        q.o,
      );
      if (next.y + v.h / 2 - (p.y + u.h / 2) < height / 2)
        put(
          `${q.o}>${l + 1}`,
          py === in_y
            ? [
                [cx + 5, py],
                [next.x, in_y],
              ]
            : [
                [cx + 5, py],
                [px + q.w + gap / 2, py],
                [px + q.w + gap / 2, in_y],
                [next.x, in_y],
              ],
          false,
          q.o,
        );
      else {
        const low = next.y - 16 - (height - 44 - v.h) / 2;
        put(
          `${q.o}>${l + 1}`,
          [
            [cx + 5, py],
            [px + q.w + 8, py],
            [px + q.w + 8, low],
            [margin - 20, low],
            [margin - 20, in_y],
            [next.x, in_y],
          ],
          false,
          q.o,
        );
      }
      piece.joins.push([c.boxes[l].key, key], [key, c.boxes[l + 1].key]);
    });
  });
  // From and to the outside.
  const inner = new Set(between.flat()),
    first = units[0],
    last = units.at(-1)!;
  const ins: number[] = [],
    outs: number[] = [];
  c.inputs.forEach((o, k) => {
    const own = c.boxes[0].inputs.includes(o),
      py = own ? at[0].y + port(first, first.ins_of, first.ins, o) : title_height + 6 + 3 * k;
    ins.push(py);
    if (own)
      put(
        `in${o}`,
        [
          [0, py],
          [at[0].x, py],
        ],
        false,
        o,
      );
    c.boxes.forEach((b, l) => {
      if (b.inputs.includes(o) && !(own && l === 0)) {
        const bus = at[l].y - 12 - (height - 44 - units[l].h) / 2;
        put(
          `in${o}>${l}`,
          [
            [0, py],
            [10 + 3 * k, py],
            [10 + 3 * k, bus],
            [at[l].x - 8, bus],
            [at[l].x - 8, at[l].y + port(units[l], units[l].ins_of, units[l].ins, o)],
            [at[l].x, at[l].y + port(units[l], units[l].ins_of, units[l].ins, o)],
          ],
          false,
          o,
        );
      }
    });
  });
  c.outputs.forEach((o, k) => {
    const l = c.boxes.findIndex((b) => b.outputs.includes(o)),
      u = units[l] ?? last,
      p = at[l] ?? at.at(-1)!,
      from = p.y + port(u, u.outs_of, u.outs, o),
      py = u === last && !inner.has(o) ? from : h - 6 - 3 * k;
    outs.push(py);
    put(
      `out${o}`,
      py === from
        ? [
            [p.x + u.w, from],
            [w, py],
          ]
        : [
            [p.x + u.w, from],
            [p.x + u.w + 6, from],
            [p.x + u.w + 6, py],
            [w, py],
          ],
      false,
      o,
    );
  });
  const label = arrow_label(c, tree),
    note = `${c.boxes.length} unfolded`;
  return {
    w,
    h,
    ins: ins.length > 0 ? ins : [h / 2],
    outs: outs.length > 0 ? outs : [h / 2],
    line: h / 2,
    key: c.key,
    reach: (q) => q,
    piece,
    ins_of: new Map(c.inputs.map((o, k) => [o, k])),
    outs_of: new Map(c.outputs.map((o, k) => [o, k])),
    make: (fx, fy): Frame => ({
      kind: "frame",
      key: c.key,
      x: fx,
      y: fy,
      w,
      h,
      node: "repeat",
      source: c.key,
      name: label.name,
      power: label.power,
      note,
      frame,
    }),
  };
}
