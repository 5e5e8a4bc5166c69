// The drawing of a step: forward along the top, backward mirrored below, the update at the right. Between them hangs what is
// remembered: kept objects by solid lines, recomputed ones by hatched arrows where they are made again, offloaded ones by way of the
// host's row.
import type { SchemeJson } from "../../api/json";
import { arrow_width } from "../../drawing/pieces";
import { empty, join, line, type Drawing } from "../../drawing/drawing";
import { place_labels, type Wish } from "../../drawing/labels";
import { width } from "../../drawing/measure";
import type { Tree } from "../../drawing/tree";
import { sum_of } from "../../state/asked";
import { bytes, count, short_type } from "../../state/format";
import type { How, Remembered, Slot } from "./slots";

interface Rows {
  forward: number;
  host: number;
  again: number;
  backward: number;
}
const half = 24,
  gap = 30; // of an arrow: from its top to its line; between arrows, where points stand

// `of`: the question that the scheme is the answer of (state/asked.ts).
export function compose_step(scheme: SchemeJson, tree: Tree, slots: Slot[], all: Remembered[], of: string): Drawing {
  const d = empty();
  const has_host = all.some((r) => r.how === "host"),
    has_again = slots.some((s) => s.again.length > 0);
  const rows: Rows = { forward: 96, host: 190, again: has_host ? 290 : 200, backward: 0 };
  rows.backward = has_again ? rows.again + 120 : has_host ? rows.host + 120 : rows.forward + 150;

  // Which object stands between a slot and those that read it: the first that another slot reads on the way forward.
  const slot_of = new Map<number, number>();
  slots.forEach((s, i) => {
    for (const m of [...s.forward, ...s.backward, ...s.again]) slot_of.set(m, i);
  });
  const main = slots.map((s) =>
    s.forward
      .flatMap((m) => scheme.morphisms[m].outputs)
      .filter((o) =>
        tree.readers[o].some(
          (r) => scheme.morphisms[r].phase === "forward" && slot_of.get(r) !== slot_of.get(tree.maker[o]),
        ),
      )
      .at(-1),
  );
  // Beside the line of several kept objects stands how many they are, which takes room.
  const held = new Map<number, number>();
  for (const r of all) {
    const i = slot_of.get(r.maker);
    if (i !== undefined && r.how === "kept" && main[i] !== r.object) held.set(i, (held.get(i) ?? 0) + 1);
  }
  const said = new Set([...held].filter(([, n]) => n > 1).map(([i]) => i));
  const meshes = all.some((r) => mesh_of(scheme, [r.object]))
    ? width(`, partly ${scheme.mesh.map(axis_name).join(", ")}`, "sub")
    : 0;
  const xs: number[] = [],
    ws: number[] = [],
    points: number[] = [];
  let x = 62;
  slots.forEach((s, i) => {
    const w = Math.max(arrow_width({ name: s.name, op: s.op, power: s.power }) - 12, said.has(i) ? 112 + meshes : 40);
    const o = main[i],
      label =
        o === undefined
          ? 0
          : Math.max(
              s.node === "op" ? width(bytes(scheme.objects[o].bytes), "type") : 0,
              width(mesh_of(scheme, [o]), "type"),
              width(scheme.objects[o].name ?? "", "name"),
            );
    const room = Math.max(s.node === "op" ? gap : gap + 14, label + 14); // what is kept of a box is said beside it
    xs.push(x);
    ws.push(w);
    points.push(x + w + room / 2);
    x += w + room;
  });
  const end = x;
  d.items.push({
    kind: "words",
    key: "w:forward",
    x: 14,
    y: rows.forward - 44,
    w: 60,
    h: 12,
    text: "forward",
    face: "title",
    frame: "",
  });
  d.items.push({
    kind: "words",
    key: "w:backward",
    x: 14,
    y: rows.backward + 56,
    w: 60,
    h: 12,
    text: "backward",
    face: "title",
    frame: "",
  });
  if (has_again)
    d.items.push({
      kind: "words",
      key: "w:again",
      x: 14,
      y: rows.again - 32,
      w: 60,
      h: 12,
      text: "again",
      face: "title",
      colour: "var(--orange-text)",
      frame: "",
    });
  if (has_host)
    d.items.push({
      kind: "words",
      key: "w:host",
      x: 14,
      y: rows.host - 14,
      w: 60,
      h: 12,
      text: "host",
      face: "title",
      colour: "var(--purple-text)",
      frame: "",
    });

  const sources = (morphisms: number[]) => morphisms.map((m) => scheme.morphisms[m].source);
  const middle = (i: number) => xs[i] + ws[i] / 2;
  slots.forEach((s, i) => {
    const label = { name: s.name, op: s.op, power: s.power };
    d.items.push({
      kind: "arrow",
      key: s.key,
      x: xs[i],
      y: rows.forward - half,
      w: ws[i],
      h: 40,
      node: s.node,
      source: s.nodes[0].key,
      sources: s.nodes.map((n) => n.key),
      morphism: s.node === "op" ? s.forward[0] : undefined,
      ...label,
      openable: s.openable,
      frame: "",
    });
    if (s.backward.length > 0)
      d.items.push({
        kind: "arrow",
        key: `∂${s.key}`,
        x: xs[i],
        y: rows.backward - half,
        w: ws[i],
        h: 40,
        node: "op",
        source: s.backward.length === 1 ? scheme.morphisms[s.backward[0]].source : `${s.nodes[0].key}:grad`,
        sources: [...s.nodes.map((n) => n.key), ...sources(s.backward)],
        morphism: s.backward.length === 1 ? s.backward[0] : undefined,
        name: `∂${s.name}`,
        op: s.backward.length > 1 && s.openable ? `${s.backward.length} morphisms` : "",
        power: s.power,
        openable: s.openable,
        frame: "",
        shade: "var(--vermillion)",
      });
    if (s.again.length > 0) {
      d.items.push({
        kind: "arrow",
        key: `again ${s.key}`,
        x: xs[i],
        y: rows.again - half,
        w: ws[i],
        h: 40,
        node: "op",
        source: scheme.morphisms[s.again[0]].source,
        sources: sources(s.again),
        morphism: s.again[0],
        name: s.name,
        op: s.again.length > 1 ? `${s.again.length} again` : s.op,
        power: s.power,
        openable: s.openable,
        hatched: true,
        frame: "",
      });
      join(d, `again ${s.key}`, `∂${s.key}`);
    }
    const o = main[i],
      px = points[i];
    if (o !== undefined) {
      const object = scheme.objects[o],
        name = object.name ?? "",
        mesh = mesh_of(scheme, [o]),
        lines = [...(s.node === "op" ? [bytes(object.bytes)] : []), ...(mesh ? [mesh] : [])],
        w = Math.max(12, width(name, "name"), ...lines.map((t) => width(t, "type"))) + 6;
      d.items.push({
        kind: "point",
        key: tree.object_keys[o],
        x: px - w / 2,
        y: rows.forward - 7,
        w,
        h: (name ? 44 : 30) + (lines.length > 1 ? 12.5 : 0),
        object: o,
        source: object.source,
        role: object.role,
        name,
        lines,
        json: s.node === "op" ? [`${of} /scheme/objects/${o}/bytes`] : [],
        frame: "",
        mark: mark_of(object),
      });
      d.lines.push(
        line({
          key: `f${i}>`,
          points: [
            [xs[i] + ws[i], rows.forward],
            [px - 5, rows.forward],
          ],
          head: true,
          object: o,
          source: object.source,
          frame: "",
        }),
      );
      join(d, s.key, tree.object_keys[o]);
      for (const r of new Set(
        tree.readers[o].filter((m) => scheme.morphisms[m].phase === "forward").map((m) => slot_of.get(m)!),
      )) {
        if (r === undefined || r <= i) continue;
        join(d, tree.object_keys[o], slots[r].key);
        if (r === i + 1)
          d.lines.push(
            line({
              key: `f${i}>${r}`,
              points: [
                [px + 5, rows.forward],
                [xs[r], rows.forward],
              ],
              head: false,
              object: o,
              source: object.source,
              frame: "",
            }),
          );
        else {
          const up = rows.forward - 34 - 5 * Math.min(4, r - i);
          d.lines.push(
            line({
              key: `f${i}>${r}`,
              points: [
                [px, rows.forward - 4],
                [px, up],
                [xs[r] - 3, up],
                [xs[r], rows.forward],
              ],
              head: false,
              object: o,
              source: object.source,
              frame: "",
            }),
          );
        }
      }
    }
    // The gradient of what stands there, on its way back.
    const next = slots.findIndex((q, k) => k > i && q.backward.length > 0);
    if (s.backward.length > 0 && next > i) {
      d.lines.push(
        line({
          key: `b${next}>${i}`,
          points: [
            [xs[next], rows.backward],
            [xs[i] + ws[i] + 1, rows.backward],
          ],
          head: true,
          object: -1,
          source: o === undefined ? "" : `${scheme.objects[o].source}:grad`,
          frame: "",
          colour: "var(--vermillion)",
        }),
      );
      join(d, `∂${slots[next].key}`, `∂${s.key}`);
    }
  });
  const turn = slots.findLastIndex((s) => s.backward.length > 0);
  if (turn >= 0) {
    const right = xs[turn] + ws[turn],
      out = right + 26;
    d.lines.push(
      line({
        key: "turn",
        points: [
          [right, rows.forward],
          [out, rows.forward],
          [out, rows.backward],
          [right + 1, rows.backward],
        ],
        head: true,
        object: -1,
        source: "",
        frame: "",
        colour: "var(--vermillion)",
      }),
    );
  }
  const labels = hang(d, scheme, of, slots, all, { slot_of, main, points, middle, xs, ws, rows });
  const right = update(d, scheme, of, Math.max(end, 200) + 16, rows);
  d.w = right + 12;
  d.h = rows.backward + 90;
  place_labels(d, labels, points);
  return d;
}

interface Places {
  slot_of: Map<number, number>;
  main: (number | undefined)[];
  points: number[];
  middle: (i: number) => number;
  xs: number[];
  ws: number[];
  rows: Rows;
}
const aside: Record<How, number> = { kept: -13, again: 0, host: 13 }; // lines of unlike kinds run beside each other
const colour: Record<How, string> = { kept: "var(--blue)", again: "var(--orange)", host: "var(--purple)" };
// One line for all that goes the same way; as thick as it is large. What is to be said of the lines is given back.
function hang(d: Drawing, scheme: SchemeJson, of: string, slots: Slot[], all: Remembered[], p: Places): Wish[] {
  const wishes: Wish[] = [];
  const bundles = new Map<
    string,
    { how: How; from: [number, number]; to: [number, number]; objects: number[]; bytes: number }
  >();
  const is_again = (m: number) => (scheme.morphisms[m].epoch ?? 0) > 0;
  for (const r of all) {
    const at = p.slot_of.get(r.maker) ?? owner(scheme, slots, r.object);
    if (at === undefined) continue;
    const point = p.main[at] === r.object && r.how !== "again";
    const from: [number, number] =
      r.how === "again"
        ? [p.middle(at), p.rows.again]
        : [point ? p.points[at] : p.middle(at) + aside[r.how], p.rows.forward];
    for (const to_again of [true, false]) {
      const targets = new Set(
        r.readers
          .filter((m) => is_again(m) === to_again)
          .map((m) => p.slot_of.get(m))
          .filter((s): s is number => s !== undefined),
      );
      for (const s of targets) {
        if (r.how === "again" && to_again && s === at) continue; // within the arrow that makes it again
        const key = `${r.how}|${from}|${s}|${to_again}`;
        const b = bundles.get(key) ?? {
          how: r.how,
          from,
          to: [p.middle(s) + aside[r.how], to_again ? p.rows.again : p.rows.backward],
          objects: [],
          bytes: 0,
        };
        if (b.objects.includes(r.object)) continue;
        b.objects.push(r.object);
        b.bytes += scheme.objects[r.object].bytes;
        bundles.set(key, b);
      }
    }
  }
  const most = Math.max(1, ...[...bundles.values()].map((b) => b.bytes));
  // A line that passes the row of what is made again goes beside an arrow that stands in its way.
  const columns = new Map<number, number>();
  const beside = (x: number): number => {
    const i = slots.findIndex((s, k) => s.again.length > 0 && x > p.xs[k] - 4 && x < p.xs[k] + p.ws[k] + 4);
    if (i < 0) return x;
    const n = columns.get(i) ?? 0;
    columns.set(i, n + 1);
    return p.xs[i] + p.ws[i] + 7 + 5 * (n % 2);
  };
  const lanes = new Map<number, number>();
  for (const [key, b] of bundles) {
    const [x0, y0] = b.from,
      [x1, y1] = b.to,
      start = y0 + (p.points.includes(x0) ? 4 : 16),
      within = y0 === p.rows.again && y1 === p.rows.again,
      stop = within ? y1 + 18 : y1 - half;
    const lane = lanes.get(x1) ?? 0;
    lanes.set(x1, lane + 1);
    const bend = within ? start + 8 : Math.max(start + 8, stop - 16 - 7 * (lane % 5));
    const passes = y0 === p.rows.forward && y1 === p.rows.backward && slots.some((s) => s.again.length > 0),
      column = passes && b.how !== "host" ? beside(x0) : x0,
      above = p.rows.again - half - 14;
    const points: [number, number][] =
      b.how === "host"
        ? [
            [x0, start],
            [x0, p.rows.host],
            [x1, p.rows.host],
            [x1, stop],
          ]
        : column !== x0
          ? [
              [x0, start],
              [x0, above],
              [column, above],
              [column, bend],
              [x1, bend],
              [x1, stop],
            ]
          : Math.abs(x0 - x1) < 2
            ? [
                [x0, start],
                [x1, stop],
              ]
            : [
                [x0, start],
                [x0, bend],
                [x1, bend],
                [x1, stop],
              ];
    d.lines.push({
      ...line({
        key: `r${key}`,
        points,
        head: true,
        object: b.objects[0],
        source: scheme.objects[b.objects[0]].source,
        frame: "",
        style: b.how,
        colour: colour[b.how],
      }),
      sources: b.objects.map((o) => scheme.objects[o].source),
      thick: 1 + 3 * Math.sqrt(b.bytes / most),
      said: said(scheme, b.how, b.objects, b.bytes),
    });
    if (b.how === "host")
      d.items.push({
        kind: "point",
        key: `h${key}`,
        x: x0 - 8,
        y: p.rows.host - 7,
        w: 16,
        h: 14,
        object: b.objects[0],
        source: scheme.objects[b.objects[0]].source,
        role: "activation",
        name: "",
        lines: [],
        frame: "",
        mark: "host",
      });
    const mesh = mesh_of(scheme, b.objects);
    if (b.objects.length > 1 || b.how === "host" || mesh)
      wishes.push({
        key: `t${key}`,
        text: `${b.objects.length > 1 ? `${b.objects.length} · ` : ""}${bytes(b.bytes)}${mesh && `, ${mesh}`}`,
        json: sum_of(`${of} /scheme/objects`, b.objects, "bytes"),
        points,
        side: b.how === "kept" ? "left" : "right",
        free: 5 + d.lines.at(-1)!.thick! / 2,
      });
  }
  return wishes;
}
function said(scheme: SchemeJson, how: How, objects: number[], all: number): string {
  const what = objects
    .slice(0, 6)
    .map((o) => `${scheme.objects[o].source}: ${short_type(scheme.objects[o])}`)
    .join("\n");
  return `${how === "again" ? "made again" : how === "host" ? "kept in the host's memory" : "kept"}: ${objects.length} object${objects.length > 1 ? "s" : ""}, ${bytes(all)}\n${what}${objects.length > 6 ? "\n…" : ""}`;
}
function owner(scheme: SchemeJson, slots: Slot[], object: number): number | undefined {
  const i = slots.findIndex((s) => s.nodes.some((n) => scheme.objects[object].source.startsWith(n.key)));
  return i < 0 ? undefined : i;
}
const axis_name = (a: SchemeJson["mesh"][number]) => `${a.name} ${a.size}`;
// The axes of the mesh along which objects are divided or are terms of a sum, "data 2"; "partly" where that is some of them.
function mesh_of(scheme: SchemeJson, objects: number[]): string {
  return scheme.mesh
    .flatMap((a) => {
      const n = objects.filter((o) =>
        scheme.objects[o].placement?.some((p) => p.over === a.name && p.spread !== "replicated"),
      ).length;
      return n === 0 ? [] : [n < objects.length ? `partly ${axis_name(a)}` : axis_name(a)];
    })
    .join(", ");
}
function mark_of(o: SchemeJson["objects"][number]): "hatched" | "host" | "mesh" | undefined {
  return o.residence === "recomputed" || o.residence === "apart"
    ? "hatched"
    : o.tier === "host"
      ? "host"
      : o.placement?.some((p) => p.spread !== "replicated")
        ? "mesh"
        : undefined;
}
// The update: gradients of parameters come in, parameters and the optimizer's states go around.
function update(d: Drawing, scheme: SchemeJson, of: string, x: number, rows: Rows): number {
  const updates = scheme.morphisms.filter((m) => m.phase === "update");
  if (updates.length === 0) return x;
  // The step's inputs alone are counted: its results lie where those lay.
  const taken = (role: string) => scheme.inputs.filter((i) => scheme.objects[i].role === role),
    sum = (role: string) => taken(role).reduce((n, i) => n + scheme.objects[i].bytes, 0),
    said = (role: string) => sum_of(`${of} /scheme/objects`, taken(role), "bytes");
  // A parameter that the step gives back is updated, by a call of its own or with others in one.
  const trained = scheme.carries.filter(([taken]) => scheme.objects[taken].role === "parameter").length;
  const y = (rows.forward + rows.backward) / 2,
    ops = [...new Set(updates.map((m) => m.op))].slice(-1)[0],
    w = Math.max(arrow_width({ name: "update", op: ops }), 70);
  d.items.push({
    kind: "arrow",
    key: "update",
    x: x + 20,
    y: y - half,
    w,
    h: 40,
    node: "op",
    source: "update",
    name: "update",
    op: ops,
    openable: false,
    frame: "",
    shade: "var(--green)",
  });
  d.lines.push(
    line({
      key: "u:in",
      points: [
        [90, rows.backward + 34],
        [x, rows.backward + 34],
        [x, y],
        [x + 20, y],
      ],
      head: false,
      object: -1,
      source: "",
      frame: "",
      colour: "var(--vermillion)",
      style: "dashed",
    }),
  );
  d.lines.push(
    line({
      key: "u:out",
      points: [
        [x + 20 + w, y],
        [x + 20 + w + 40, y],
      ],
      head: true,
      object: -1,
      source: "",
      frame: "",
      colour: "var(--green)",
    }),
  );
  const px = x + w + 66;
  d.items.push({
    kind: "words",
    key: "u:p",
    x: px,
    y: y + 36,
    w: 80,
    h: 12,
    text: "parameters",
    face: "name",
    anchor: "end",
    frame: "",
  });
  d.items.push({
    kind: "words",
    key: "u:pb",
    x: px,
    y: y + 50,
    w: 80,
    h: 12,
    text: bytes(sum("parameter")),
    json: said("parameter"),
    face: "sub",
    anchor: "end",
    frame: "",
  });
  d.items.push({
    kind: "words",
    key: "u:ps",
    x: px,
    y: y + 63,
    w: 80,
    h: 12,
    text: `states ${bytes(sum("state"))}`,
    json: said("state"),
    face: "sub",
    anchor: "end",
    frame: "",
  });
  d.items.push({
    kind: "words",
    key: "u:g",
    x: 96,
    y: rows.backward + 48,
    w: 200,
    h: 12,
    text: `gradients of parameters: ${count(trained)} updates`,
    face: "sub",
    frame: "",
  });
  join(d, "∂(embed)", "update");
  return px + 10;
}
