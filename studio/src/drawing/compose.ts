// A tree of boxes as a drawing: what is closed is one arrow, what is open is a frame around its own drawing. Boxes are arranged
// from the innermost outwards, each by itself, so that opening or editing one leaves the inside of all others as it was.
import { bytes, count, short_type } from "../state/format";
import { arrange, type Arrangement, type ArrangeEdge } from "./arrange";
import { empty, join, line, type Arrow, type Drawing, type Frame, type Line, type Point } from "./drawing";
import { width } from "./measure";
import {
  arrow_height,
  arrow_label,
  arrow_line,
  arrow_width,
  inset,
  place,
  point_line,
  point_lines,
  point_size,
  title_height,
  type Piece,
  type Spot,
  type Unit,
} from "./pieces";
import type { BoxNode, OpNode, RepeatNode, Tree, TreeNode } from "./tree";
import { unfolded_unit } from "./unfold";

export interface Options {
  is_open: (key: string) => boolean; // of a box, a repetition or an op
  is_unfolded: (key: string) => boolean; // of a repetition: all its boxes side by side
  index: (key: string) => number; // of an open repetition that is folded: which of its boxes is shown
  weights: boolean;
  axis_names: boolean;
  body: (morphism: number) => string[]; // what an open op shows
}

export async function compose(tree: Tree, options: Options): Promise<Drawing> {
  const drawing = empty(),
    margin = 30;
  const piece = await compose_box(tree, tree.root, options, "", true);
  place(piece, margin, margin, drawing.items, drawing.lines);
  for (const [a, b] of piece.joins) join(drawing, a, b);
  drawing.w = piece.w + 2 * margin;
  drawing.h = piece.h + 2 * margin;
  return drawing;
}
async function compose_box(tree: Tree, box: BoxNode, options: Options, frame: string, root: boolean): Promise<Piece> {
  const objects = tree.scheme.objects;
  // What each box of a folded repetition gives outwards is a list: one point for all of it.
  const lists = new Map<number, number>(),
    length = new Map<number, number>();
  for (const c of box.children) {
    if (c.kind !== "repeat" || options.is_unfolded(c.key)) continue;
    const first = new Map<string, number>();
    for (const o of c.outputs) {
      const tail = objects[o].source.replace(/\[\d+\]/, "[]"),
        head = first.get(tail);
      if (head === undefined) first.set(tail, o);
      else {
        lists.set(o, head);
        length.set(head, (length.get(head) ?? 1) + 1);
      }
    }
  }
  const one = (all: number[]) => [...new Set(all.map((o) => lists.get(o) ?? o))];
  const children =
    lists.size === 0
      ? box.children
      : box.children.map((c) => ({ ...c, inputs: one(c.inputs), outputs: one(c.outputs) }) as TreeNode);
  const made = new Set(children.flatMap((c) => c.outputs));
  const given = new Set(one(box.outputs));
  const units: Unit[] = [],
    edges: (ArrangeEdge & { object: number })[] = [];
  const at_object = new Map<number, number>(),
    reads = new Map<number, number[]>();
  children.forEach((c, i) => {
    for (const o of c.inputs) reads.set(o, [...(reads.get(o) ?? []), i]);
  });

  const add_port = (o: number, layer: "first" | "last") => {
    units.push({
      w: 1,
      h: 1,
      ins: layer === "last" ? [0.5] : [],
      outs: layer === "first" ? [0.5] : [],
      layer,
      make: () => null,
      line: 0.5,
      key: "",
      reach: (x) => x,
      object: o,
      ins_of: new Map([[o, 0]]),
      outs_of: new Map([[o, 0]]),
    });
    return units.length - 1;
  };
  const add_point = (
    o: number,
    layer?: "first" | "last",
    key = given.has(o) && !root ? `o:${box.key}/${tree.object_keys[o].slice(2)}` : tree.object_keys[o],
  ) => {
    const object = objects[o],
      name = object.name ?? (root ? object.source.split(":")[0] : ""),
      n = length.get(o) ?? 1,
      lines =
        n > 1
          ? [`${n} × ${short_type(object, options.axis_names)}`, bytes(n * object.bytes)]
          : point_lines(tree, o, options.axis_names).slice(name ? 0 : 1),
      said = `forward /scheme/objects/${o}/bytes`,
      { w, h } = point_size(name, lines);
    units.push({
      w,
      h,
      ins: [point_line],
      outs: [point_line],
      layer,
      line: point_line,
      key,
      object: o,
      ins_of: new Map([[o, 0]]),
      outs_of: new Map([[o, 0]]),
      reach: (x, side) => x + w / 2 + (side === "in" ? -5 : 5),
      make: (x, y): Point => ({
        kind: "point",
        key,
        x,
        y,
        w,
        h,
        object: o,
        source: object.source,
        role: object.role,
        name,
        lines,
        json: lines.map((_, i) => (i < lines.length - 1 ? undefined : n > 1 ? `${n} * [${said}]` : said)),
        frame,
        mark:
          object.residence === "recomputed"
            ? "hatched"
            : object.tier
              ? "host"
              : object.placement?.length
                ? "mesh"
                : undefined,
      }),
    });
    at_object.set(o, units.length - 1);
    return units.length - 1;
  };
  const add_child = async (c: TreeNode): Promise<void> => {
    const open = options.is_open(c.key) && (c.kind !== "op" || options.body(c.morphism).length > 0);
    const unit =
      c.kind === "repeat" && options.is_unfolded(c.key)
        ? unfolded_unit(tree, c, await boxes_of(tree, c, options), options.axis_names, frame)
        : open
          ? frame_unit(tree, c, options, frame)
          : arrow_unit(tree, c, frame);
    units.push(await unit);
  };

  // In the order of the text: what a box takes, then each call with what it gives.
  for (const o of box.inputs)
    if (root) add_point(o, tree.readers[o].length > 0 && !made.has(o) ? undefined : "first");
    else at_object.set(o, add_port(o, "first"));
  // Beside what the text names, counts and the like that a step needs are not drawn.
  const some_named = root && box.outputs.some((o) => objects[o].name);
  const frames = children.map(() => -1);
  for (let i = 0; i < children.length; i++) {
    const c = children[i];
    if (options.weights && c.kind === "op")
      for (const o of c.params) if (!at_object.has(o)) add_point(o, undefined, `o:${box.key}/${objects[o].source}`);
    await add_child(c);
    frames[i] = units.length - 1;
    for (const o of c.outputs) if (reads.has(o) || (root && (objects[o].name || !some_named))) add_point(o);
  }
  const connect = (from: number, to: number, o: number) => {
    const a = units[from].outs_of.get(o),
      b = units[to].ins_of.get(o);
    edges.push({ from: [from, a ?? 0], to: [to, b ?? 0], object: o });
  };
  children.forEach((c, i) => {
    const unit = frames[i];
    for (const o of c.inputs) {
      const from = at_object.get(o);
      if (from !== undefined) connect(from, unit, o);
    }
    if (options.weights && c.kind === "op") for (const o of c.params) connect(at_object.get(o)!, unit, o);
    for (const o of c.outputs) {
      const point = at_object.get(o);
      if (point !== undefined) connect(unit, point, o);
      if (!root && given.has(o)) {
        const port = add_port(o, "last");
        connect(point ?? unit, port, o);
      }
    }
  });
  // What a box gives as it took it.
  if (!root)
    for (const o of box.outputs)
      if (!made.has(o) && at_object.has(o)) {
        const port = add_port(o, "last");
        connect(at_object.get(o)!, port, o);
      }

  mark_main(units.length, edges);
  const answer: Arrangement = await arrange({
    nodes: units.map(({ w, h, ins, outs, layer }) => ({ w, h, ins, outs, ...(layer && { layer }) })),
    edges: edges.map(({ from, to, main }) => ({ from, to, ...(main && { main }) })),
    ...(units.reduce((n, u) => n + u.w, 0) > 1000 && !root && { wrap: true }),
  });
  return assemble(units, edges, answer, frame, objects);
}

function assemble(
  units: Unit[],
  edges: (ArrangeEdge & { object: number })[],
  answer: Arrangement,
  frame: string,
  objects: Tree["scheme"]["objects"],
): Piece {
  const piece: Piece = { w: answer.w, h: answer.h, ins: new Map(), outs: new Map(), items: [], lines: [], joins: [] };
  units.forEach((u, i) => {
    const { x, y } = answer.nodes[i],
      item = u.make(x, y);
    if (item) piece.items.push(item);
    else if (u.layer === "first") piece.ins.set(u.object!, { x, y: y + u.line });
    else piece.outs.set(u.object!, { x, y: y + u.line });
    if (u.piece) {
      place(u.piece, x, y, piece.items, piece.lines);
      piece.joins.push(...u.piece.joins);
    }
  });
  edges.forEach((e, i) => {
    const points = answer.edges[i].map(([x, y]): [number, number] => [x, y]),
      from = units[e.from[0]],
      to = units[e.to[0]];
    const a = answer.nodes[e.from[0]],
      b = answer.nodes[e.to[0]];
    if (from.object !== undefined && from.key) points[0][0] = from.reach(a.x, "out");
    if (to.object !== undefined && to.key) points[points.length - 1][0] = to.reach(b.x, "in");
    const inner_head = to.key !== "" && to.object !== undefined;
    piece.lines.push(
      line({
        key: `${frame}|${e.from[0]}>${e.to[0]}:${e.object}`,
        points,
        head: inner_head,
        object: e.object,
        source: objects[e.object].source,
        frame,
        to_key: to.object === undefined ? to.key : undefined,
      }),
    );
    if (from.key && to.key) piece.joins.push([from.key, to.key]);
  });
  return piece;
}

function arrow_unit(tree: Tree, c: TreeNode, frame: string): Unit {
  const label = arrow_label(c, tree),
    w = arrow_width(label);
  return {
    w,
    h: arrow_height,
    ins: [arrow_line],
    outs: [arrow_line],
    line: arrow_line,
    key: c.key,
    reach: (x) => x,
    ins_of: new Map(),
    outs_of: new Map(),
    make: (x, y): Arrow => ({
      kind: "arrow",
      key: c.key,
      x,
      y,
      w,
      h: arrow_height,
      node: c.kind,
      source: c.key,
      morphism: c.kind === "op" ? c.morphism : undefined,
      ...label,
      openable: true,
      frame,
    }),
  };
}
async function frame_unit(tree: Tree, c: TreeNode, options: Options, frame: string): Promise<Unit> {
  if (c.kind === "op") return body_unit(tree, c, options.body(c.morphism).flatMap(wrapped), frame);
  const index = c.kind === "repeat" ? Math.min(options.index(c.key), c.boxes.length - 1) : 0;
  const box = c.kind === "repeat" ? c.boxes[index] : c;
  const inner = await compose_box(tree, box, options, c.key, false);
  const label = arrow_label(c, tree),
    note = note_of(tree, c, index);
  const w = Math.max(
      inner.w + 2 * inset,
      width(label.name, "title") + width(note, "sub") + (c.kind === "repeat" ? 165 : 70),
    ),
    h = inner.h + title_height + 12,
    dx = (w - inner.w) / 2;
  // Lines go on to the frame's edge.
  const reach: Line[] = [],
    mid = title_height + inner.h / 2;
  for (const [o, { x, y }] of inner.ins)
    reach.push(
      line({
        key: `${c.key}|in${o}`,
        points: [
          [0, y + title_height],
          [dx + x, y + title_height],
        ],
        head: false,
        object: o,
        source: tree.scheme.objects[o].source,
        frame: c.key,
      }),
    );
  for (const [o, { x, y }] of inner.outs)
    reach.push(
      line({
        key: `${c.key}|out${o}`,
        points: [
          [dx + x, y + title_height],
          [w, y + title_height],
        ],
        head: false,
        object: o,
        source: tree.scheme.objects[o].source,
        frame: c.key,
      }),
    );
  const moved: Piece = { ...inner, items: [], lines: reach };
  place(inner, dx, title_height, moved.items, moved.lines);
  const ins = [...inner.ins.values()].map((p) => p.y + title_height),
    outs = [...inner.outs.values()].map((p) => p.y + title_height);
  const match = (own: number[], inner_of: Map<number, Spot>) => {
    const keys = [...inner_of.keys()],
      of = new Map<number, number>();
    own.forEach((o, k) => {
      const i = keys.indexOf(o);
      of.set(o, i >= 0 ? i : counterpart(tree, c, box, o, keys, k));
    });
    return of;
  };
  return {
    w,
    h,
    ins: ins.length > 0 ? ins : [mid],
    outs: outs.length > 0 ? outs : [mid],
    line: mid,
    key: c.key,
    reach: (x) => x,
    piece: moved,
    ins_of: match(c.inputs, inner.ins),
    outs_of: match(c.outputs, inner.outs),
    make: (x, y): Frame => ({
      kind: "frame",
      key: c.key,
      x,
      y,
      w,
      h,
      node: c.kind,
      source: c.key,
      name: label.name,
      power: label.power,
      note,
      frame,
      variant: c.kind === "repeat" ? { index, of: c.boxes.length } : undefined,
    }),
  };
}
const boxes_of = (tree: Tree, c: RepeatNode, options: Options): Promise<Unit[]> =>
  Promise.all(
    c.boxes.map((b) => (options.is_open(b.key) ? frame_unit(tree, b, options, c.key) : arrow_unit(tree, b, c.key))),
  );
// Which port of the shown box stands for an object that another box of the same repetition reads or gives.
function counterpart(tree: Tree, c: TreeNode, box: BoxNode, o: number, keys: number[], k: number): number {
  const own = tree.scheme.objects[o].source,
    tail = (s: string) => s.slice(s.indexOf("]") + 1);
  if (c.kind === "repeat") {
    const i = keys.findIndex((q) => tail(tree.scheme.objects[q].source) === tail(own));
    if (i >= 0) return i;
  }
  return Math.min(k, Math.max(0, Math.min(keys.length, box.outputs.length || 1) - 1));
}
// A line of an open op in parts of some sixty letters; what goes on is set in.
function wrapped(text: string): string[] {
  const most = 64,
    indent = /^ */.exec(text)![0],
    lines: string[] = [];
  let line = indent;
  for (const word of text.trim().split(" ")) {
    if (line.trim() && line.length + 1 + word.length > most) {
      lines.push(line);
      line = `${indent}  `;
    }
    line += line.trim() ? ` ${word}` : word;
  }
  return [...lines, line];
}
function body_unit(tree: Tree, c: OpNode, text: string[], frame: string): Unit {
  const label = arrow_label(c, tree),
    m = tree.scheme.morphisms[c.morphism],
    note = label.op || (m.flops ? `${count(m.flops)} FLOPs` : "");
  const w =
      Math.ceil(Math.max(...text.map((t) => width(t, "mono")), width(label.name, "title") + width(note, "sub") + 60)) +
      2 * inset,
    h = title_height + text.length * 16 + 12,
    mid = title_height + (h - title_height) / 2 - 6;
  return {
    w,
    h,
    ins: [mid],
    outs: [mid],
    line: mid,
    key: c.key,
    reach: (x) => x,
    ins_of: new Map(),
    outs_of: new Map(),
    make: (x, y): Frame => ({
      kind: "frame",
      key: c.key,
      x,
      y,
      w,
      h,
      node: "op",
      source: c.key,
      name: label.name,
      note,
      json: label.op || !m.flops ? undefined : `forward /scheme/morphisms/${c.morphism}/flops`,
      text,
      frame,
      morphism: c.morphism,
    }),
  };
}
function note_of(tree: Tree, c: BoxNode | RepeatNode, index: number): string {
  const numbers = c.params.reduce(
    (n, o) =>
      n +
      (tree.scheme.objects[o].role === "parameter" ? tree.scheme.objects[o].axes.reduce((k, a) => k * a.size, 1) : 0),
    0,
  );
  const size = numbers > 0 ? `${count(numbers)} parameters` : "";
  if (c.kind === "box") return size;
  const alike = c.variants.find((v) => v.indices.includes(index))!;
  return [
    c.variants.length === 1
      ? `l = 0 … ${c.boxes.length - 1}`
      : `l = ${alike.indices.length > 5 ? `${alike.indices.slice(0, 4).join(", ")}, …` : alike.indices.join(", ")}`,
    size,
  ]
    .filter((s) => s)
    .join(" · ");
}

// The longest way through a box is drawn as straight as can be: what goes around it is what is remarkable.
function mark_main(n: number, edges: (ArrangeEdge & { object: number })[]) {
  const out: number[][] = Array.from({ length: n }, () => []),
    degree = new Int32Array(n),
    length = new Int32Array(n).fill(0),
    via = new Int32Array(n).fill(-1);
  edges.forEach((e, i) => {
    out[e.from[0]].push(i);
    degree[e.to[0]]++;
  });
  const ready = [...degree.keys()].filter((i) => degree[i] === 0);
  let last = -1;
  for (let k = 0; k < ready.length; k++) {
    const u = ready[k];
    if (last < 0 || length[u] > length[last]) last = u;
    for (const i of out[u]) {
      const v = edges[i].to[0];
      if (length[u] + 1 > length[v]) {
        length[v] = length[u] + 1;
        via[v] = i;
      }
      if (--degree[v] === 0) ready.push(v);
    }
  }
  for (let u = last; u >= 0 && via[u] >= 0; u = edges[via[u]].from[0]) edges[via[u]].main = true;
}
