// A step as slots from left to right: a slot is a box of the forward pass that is closed, or an op of one that is open. What runs
// backward or again belongs to the slot of its path. Runs of blocks of which the same is remembered may be folded into one.
import type { SchemeJson } from "../../api/json";
import type { BoxNode, Tree, TreeNode } from "../../drawing/tree";
import { path_of } from "../../state/format";

export type How = "kept" | "again" | "host";
export interface Slot {
  key: string;
  name: string;
  op: string;
  power?: number;
  node: "op" | "box" | "repeat";
  openable: boolean;
  frame: string;
  forward: number[];
  backward: number[];
  again: number[];
  nodes: TreeNode[];
}
// An object that is made on the way forward (or again) and read on the way back.
export interface Remembered {
  object: number;
  how: How;
  maker: number;
  readers: number[];
}

export function remembered(scheme: SchemeJson, tree: Tree): Remembered[] {
  const all: Remembered[] = [];
  scheme.objects.forEach((o, i) => {
    const maker = tree.maker[i];
    if (maker < 0 || o.role === "gradient" || o.role === "parameter" || o.role === "state" || o.role === "metric")
      return;
    const m = scheme.morphisms[maker];
    if (m.phase === "update") return;
    const again = (m.epoch ?? 0) > 0;
    if (m.phase === "backward" && !again && o.tier !== "host") return;
    const readers = tree.readers[i].filter(
      (r) => scheme.morphisms[r].phase === "backward" && !(again && (scheme.morphisms[r].epoch ?? 0) === m.epoch),
    );
    const to_host = o.tier === "host";
    if (readers.length > 0) all.push({ object: i, how: to_host ? "host" : again ? "again" : "kept", maker, readers });
  });
  return all;
}

const tail = (path: string) => path.replace(/^.*?\[\d+\]/, "");
function signatures(scheme: SchemeJson, boxes: BoxNode[], all: Remembered[]): string[] {
  const prefix = new Map(boxes.map((b, i) => [b.key, i])),
    parts: string[][] = boxes.map((b) => [b.shape]);
  for (const r of all) {
    const path = path_of(scheme.objects[r.object].source),
      end = path.indexOf("]"),
      i = end < 0 ? undefined : prefix.get(path.slice(0, end + 1));
    if (i !== undefined) parts[i].push(`${tail(path)} ${r.how}`);
  }
  return parts.map((p) => p.join("\n"));
}

export function slots_of(tree: Tree, all: Remembered[], is_open: (key: string) => boolean, fold: boolean): Slot[] {
  const scheme = tree.scheme,
    slots: Slot[] = [];
  const push = (nodes: TreeNode[], frame: string, power?: number) => {
    const n = nodes[0],
      op = n.kind === "op" ? scheme.morphisms[n.morphism].op : "",
      name = n.name.replace(/#\d+$/, "");
    slots.push({
      key: power ? `${nodes[0].key}…` : n.key,
      name: power ? name.replace(/\[\d+\]$/, "") : name,
      op: name === op ? "" : op,
      power,
      node: power ? "repeat" : n.kind,
      openable: n.kind !== "op",
      frame,
      forward: nodes.flatMap((q) => q.morphisms),
      backward: [],
      again: [],
      nodes,
    });
  };
  const visit = (n: TreeNode, frame: string) => {
    if (n.kind === "op" || (n.kind === "box" && !is_open(`step:${n.key}`))) {
      push([n], frame);
      return;
    }
    if (n.kind === "box") {
      for (const c of n.children) visit(c, n.key);
      return;
    }
    const signs = fold ? signatures(scheme, n.boxes, all) : [];
    for (let i = 0; i < n.boxes.length;) {
      let end = i + 1;
      if (fold && !is_open(`step:${n.boxes[i].key}`))
        while (end < n.boxes.length && signs[end] === signs[i] && !is_open(`step:${n.boxes[end].key}`)) end++;
      if (end - i > 1) push(n.boxes.slice(i, end), frame, end - i);
      else visit(n.boxes[i], frame);
      i = end;
    }
  };
  for (const n of tree.root.children) visit(n, "");

  // Who belongs where: by path, then by the nearest prefix that has a slot.
  const by_path = new Map<string, number>();
  slots.forEach((s, i) => {
    for (const n of s.nodes) by_path.set(n.key, i);
    for (const m of s.forward) by_path.set(path_of(scheme.morphisms[m].source), i);
  });
  const find = (path: string): number | undefined => {
    for (let p = path; p; p = p.includes(".") ? p.slice(0, p.lastIndexOf(".")) : "") {
      const i = by_path.get(p);
      if (i !== undefined) return i;
    }
    return undefined;
  };
  scheme.morphisms.forEach((m, i) => {
    if (m.phase !== "backward") return;
    const at = find(path_of(m.source)) ?? nearest_slot(tree, slots, i);
    if (at === undefined) return;
    ((m.epoch ?? 0) > 0 ? slots[at].again : slots[at].backward).push(i);
  });
  return slots;
}
// A morphism whose path names no slot stands where what it reads was made.
function nearest_slot(tree: Tree, slots: Slot[], morphism: number): number | undefined {
  for (const o of tree.scheme.morphisms[morphism].inputs) {
    const maker = tree.maker[o];
    if (maker < 0) continue;
    const i = slots.findIndex((s) => s.forward.includes(maker) || s.backward.includes(maker));
    if (i >= 0) return i;
  }
  return undefined;
}
