// A rule as a picture: its left side, an arrow, its right side. A morphism rule's sides are diagrams of their terms; an object rule's
// are a point that is so, and the same point as it becomes.
import { arrange, type ArrangeEdge, type ArrangeNode } from "../../drawing/arrange";
import { arrow_width, point_size } from "../../drawing/pieces";
import { empty, line, type Drawing, type Item } from "../../drawing/drawing";
import { width } from "../../drawing/measure";
import { parse_term, print_term, type Rule, type Term } from "./rules";

interface Side {
  nodes: (ArrangeNode & { make: (x: number, y: number) => Item; point: boolean })[];
  edges: ArrangeEdge[];
  names: Map<string, number>;
}
const new_side = (): Side => ({ nodes: [], edges: [], names: new Map() });

function point(
  side: Side,
  name: string,
  role: string,
  key: string,
  mark?: "hatched" | "host" | "mesh",
  note: string[] = [],
): number {
  const { w, h } = point_size(name, note);
  side.nodes.push({
    w,
    h,
    ins: [7],
    outs: [7],
    point: true,
    make: (x, y) => ({
      kind: "point",
      key: `${key}${side.nodes.length}:${name}:${x}`,
      x,
      y,
      w,
      h,
      object: -1,
      source: "",
      role,
      name,
      lines: note,
      frame: "",
      mark,
    }),
  });
  return side.nodes.length - 1;
}
function arrow(side: Side, name: string, op: string, key: string, shade?: string): number {
  const w = arrow_width({ name, op });
  side.nodes.push({
    w,
    h: 40,
    ins: [24],
    outs: [24],
    point: false,
    make: (x, y) => ({
      kind: "arrow",
      key: `${key}${name}:${x}:${y}`,
      x,
      y,
      w,
      h: 40,
      node: "op",
      source: "",
      name,
      op,
      openable: false,
      frame: "",
      shade,
    }),
  });
  return side.nodes.length - 1;
}
const connect = (side: Side, from: number, to: number) => side.edges.push({ from: [from, 0], to: [to, 0] });
// Sizes of an object and how a parameter begins are numbers, not objects.
const of_numbers = /^(width|size|queries|uniform|normal|constant)$/;
const mentions = (t: Term, names: Set<string>): boolean =>
  t.kind === "name"
    ? names.has(t.value)
    : t.kind === "call" && !of_numbers.test(t.value)
      ? names.has(t.value) || t.value === "param" || t.args.some((a) => mentions(a.term, names))
      : false;

// Draws a term of objects and gives the node of its result. `known` are the names that stand for objects.
function draw(side: Side, t: Term, known: Set<string>, key: string, made: boolean): number {
  if (t.kind === "name") {
    const there = side.names.get(t.value);
    if (there !== undefined) return there;
    const i = point(side, t.value, /^[A-Z]/.test(t.value) ? "parameter" : "activation", key);
    side.names.set(t.value, i);
    return i;
  }
  if (t.kind !== "call") return point(side, t.value, "control", key);
  const objects = t.args.filter((a) => mentions(a.term, known)),
    constants = t.args.filter((a) => !mentions(a.term, known));
  if (t.value === "param") return point(side, "", "parameter", key, undefined, [print_term(t)]);
  const again = known.has(t.value),
    named = t.args.find((a) => a.name === "name");
  const said = constants
    .filter((a) => a.name !== "name")
    .map((a) => (a.name ? `${a.name}=` : "") + print_term(a.term))
    .join(", ");
  const i = arrow(
    side,
    again ? `${t.value} again` : named ? print_term(named.term) : t.value,
    named ? t.value : said.length > 26 ? `${said.slice(0, 24)}…` : said,
    key,
    made && !again ? "var(--green)" : undefined,
  );
  for (const a of objects) {
    const inner = draw(side, a.term, known, key, made);
    if (side.nodes[inner].point) connect(side, inner, i);
    else {
      const mid = point(side, "", "activation", key);
      connect(side, inner, mid);
      connect(side, mid, i);
    }
  }
  return i;
}
async function place(
  side: Side,
  d: Drawing,
  x0: number,
  y0: number,
  height: number,
  key: string,
): Promise<{ w: number; h: number }> {
  const answer = await arrange({
    nodes: side.nodes.map(({ w, h, ins, outs }) => ({ w, h, ins, outs })),
    edges: side.edges,
  });
  const dy = y0 + Math.max(0, (height - answer.h) / 2);
  side.nodes.forEach((n, i) => d.items.push(n.make(answer.nodes[i].x + x0, answer.nodes[i].y + dy)));
  side.edges.forEach((e, i) => {
    const points = answer.edges[i].map(([x, y]): [number, number] => [x + x0, y + dy]),
      from = side.nodes[e.from[0]],
      to = side.nodes[e.to[0]];
    if (from.point) points[0][0] = x0 + answer.nodes[e.from[0]].x + from.w / 2 + 5;
    if (to.point) points[points.length - 1][0] = x0 + answer.nodes[e.to[0]].x + to.w / 2 - 5;
    d.lines.push(line({ key: `${key}e${i}`, points, head: to.point, object: -1, source: "", frame: "" }));
  });
  return answer;
}

export async function compose_rule(rule: Rule): Promise<Drawing> {
  const d = empty(),
    left = new_side(),
    right = new_side();
  try {
    if (rule.kind === "morphism") morphism_sides(rule, left, right);
    else if (rule.kind === "state") {
      const [head, ...statements] = rule.left.split("\n"),
        name = /^(\w+)/.exec(head)?.[1] ?? "state",
        known = new Set([name, "parameter", "steps"]);
      point(left, "parameter", "parameter", "l", undefined, [head.replace(/^\w+\s+of\s+/, "")]);
      statement_nodes(right, statements, known);
      finish(right, draw(right, parse_term(rule.right), known, "r", true), name, "state");
    } else object_sides(rule, left, right);
  } catch {
    /* what cannot be drawn is read: its text stands above */
  }
  const gap = 84;
  const size = await place(left, d, 10, 14, 0, "l");
  const other = await place(right, d, 10 + size.w + gap, 14, size.h, "r");
  if (other.h > size.h) for (const i of d.items) if (i.x < 10 + size.w) i.y += (other.h - size.h) / 2;
  if (other.h > size.h)
    for (const l of d.lines)
      if (l.key.startsWith("l")) {
        l.points = l.points.map(([x, y]) => [x, y + (other.h - size.h) / 2]);
        l.y0 += (other.h - size.h) / 2;
        l.y1 += (other.h - size.h) / 2;
      }
  const mid = 14 + Math.max(size.h, other.h) / 2 - (rule.kind === "object" ? 16 : 0),
    x = 10 + size.w;
  d.lines.push(
    line({
      key: "becomes",
      points: [
        [x + 18, mid],
        [x + gap - 18, mid],
      ],
      head: true,
      object: -1,
      source: "",
      frame: "",
      style: "dashed",
      thick: 1.6,
    }),
  );
  d.w = 20 + size.w + gap + other.w;
  d.h = 28 + Math.max(size.h, other.h);
  return d;
}
function finish(side: Side, result: number, name: string, role = "activation") {
  if (side.nodes[result].point) return;
  const end = point(side, name, role, "end");
  connect(side, result, end);
}
function statement_nodes(side: Side, statements: string[], known: Set<string>) {
  for (const s of statements) {
    const m = /^([\w, ]+?)\s*=\s*(.*)$/s.exec(s);
    if (!m) continue;
    const name = m[1].trim(),
      term = parse_term(m[2]);
    if (term.kind === "call" && term.value === "param")
      side.names.set(name, point(side, name, "parameter", "p", undefined, [print_term(term).slice(0, 40)]));
    else {
      const i = draw(side, term, known, "s", true),
        end = side.nodes[i].point ? i : point(side, name, "activation", "s");
      if (end !== i) connect(side, i, end);
      side.names.set(name, end);
    }
    known.add(name);
  }
}
function morphism_sides(rule: Rule, left: Side, right: Side) {
  const [head, ...statements] = rule.left.split("\n"),
    m = /^(\w+)\s*=\s*(.*)$/s.exec(head);
  if (!m) return;
  const term = parse_term(m[2]),
    operands = new Set(term.kind === "call" ? term.args.map((a) => print_term(a.term)) : []),
    known = new Set([...operands, m[1]]);
  finish(left, draw(left, term, operands, "l", false), m[1]);
  // On the right y stands for what the use was: drawn as the use again, once.
  const inner = new Set(known);
  if (mentions_bare(parse_term(rule.right), m[1])) {
    const was = draw(right, term, operands, "r", false),
      y = point(right, m[1], "activation", "r");
    connect(right, was, y);
    right.names.set(m[1], y);
  }
  statement_nodes(right, statements, inner);
  finish(right, draw(right, parse_term(rule.right), inner, "r", true), `${m[1]}′`);
}
const mentions_bare = (t: Term, name: string): boolean =>
  t.kind === "name"
    ? t.value === name
    : t.kind === "call" && !of_numbers.test(t.value)
      ? t.args.some((a) => mentions_bare(a.term, name))
      : false;

function object_sides(rule: Rule, left: Side, right: Side) {
  const role = /gradient/.test(rule.left)
    ? "gradient"
    : /optimizer_state/.test(rule.left)
      ? "state"
      : /parameter|trained|frozen|matrix|table|vector/.test(rule.left)
        ? "parameter"
        : /input/.test(rule.left)
          ? "input"
          : "activation";
  point(left, rule.left, role, "l");
  const mark = /recomputed|apart/.test(rule.right)
    ? ("hatched" as const)
    : /host/.test(rule.right)
      ? ("host" as const)
      : /sharded|stage/.test(rule.right)
        ? ("mesh" as const)
        : undefined;
  const short = width(rule.right, "name") > 420 ? `${rule.right.slice(0, 60)}…` : rule.right;
  point(right, short.replace(/\s+/g, " "), role, "r", mark);
}
