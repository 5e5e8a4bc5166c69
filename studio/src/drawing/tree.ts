// A flat scheme as a tree of boxes. A box is a dotted prefix of its morphisms' paths, a repetition is the family block[0],
// block[1], ... of boxes. What stands before, behind and at the end of the outermost repetitions is gathered into embed,
// readout and loss, which no text names, so that a model is a short chain at first sight.
import type { SchemeJson } from "../api/json";
import { last_part, path_of } from "../state/format";

interface Common {
  key: string; // unlike all others of the tree, and the same after an edit elsewhere: the path
  name: string;
  inputs: number[]; // objects that come from outside, without parameters, state and control
  outputs: number[]; // objects that are read outside, or that the scheme gives
  params: number[]; // parameters, states and controls that are read inside
  morphisms: number[]; // all below, in order
}
export interface OpNode extends Common {
  kind: "op";
  morphism: number;
}
export interface BoxNode extends Common {
  kind: "box";
  children: TreeNode[];
  shape: string;
  gathered: boolean;
}
export interface RepeatNode extends Common {
  kind: "repeat";
  boxes: BoxNode[];
  variants: { shape: string; indices: number[] }[];
}
export type TreeNode = OpNode | BoxNode | RepeatNode;

export interface Tree {
  scheme: SchemeJson;
  root: BoxNode;
  maker: Int32Array;
  readers: number[][];
  by_key: Map<string, TreeNode>;
  object_keys: string[];
} // object_keys: sources, told apart where several objects have one

const is_data = (role: string) => role !== "parameter" && role !== "state" && role !== "control";

interface Draft {
  path: string;
  children: (number | Draft)[];
  at: Map<string, Draft>;
}

export function build_tree(scheme: SchemeJson, which: (morphism: number) => boolean = () => true): Tree {
  const { objects, morphisms } = scheme;
  const maker = new Int32Array(objects.length).fill(-1),
    readers: number[][] = objects.map(() => []);
  morphisms.forEach((m, i) => {
    for (const o of m.outputs) maker[o] = i;
    for (const o of m.inputs) readers[o].push(i);
  });
  const given = new Set(scheme.outputs);

  const prefixes = new Set<string>();
  for (const [i, m] of morphisms.entries()) {
    if (!which(i)) continue;
    const path = path_of(m.source);
    for (let dot = path.indexOf("."); dot >= 0; dot = path.indexOf(".", dot + 1)) prefixes.add(path.slice(0, dot));
  }
  const top: Draft = { path: "", children: [], at: new Map() };
  morphisms.forEach((m, i) => {
    if (!which(i)) return;
    const path = path_of(m.source),
      box = prefixes.has(path) ? path : path.includes(".") ? path.slice(0, path.lastIndexOf(".")) : "";
    let here = top;
    if (box) {
      let from = 0;
      for (const part of box.split(".")) {
        const prefix = box.slice(0, from + part.length);
        from += part.length + 1;
        let inner = here.at.get(prefix);
        if (!inner) {
          inner = { path: prefix, children: [], at: new Map() };
          here.at.set(prefix, inner);
          here.children.push(inner);
        }
        here = inner;
      }
    }
    here.children.push(i);
  });

  const by_key = new Map<string, TreeNode>();
  const add = <T extends TreeNode>(node: T): T => {
    while (by_key.has(node.key)) node.key += "'"; // several morphisms of one call have one path
    by_key.set(node.key, node);
    return node;
  };
  const surface = (all: number[]) => {
    const inside = new Set(all),
      inputs: number[] = [],
      params: number[] = [],
      outputs: number[] = [],
      seen = new Set<number>();
    for (const i of all) {
      for (const o of morphisms[i].inputs) {
        if (seen.has(o) || (maker[o] >= 0 && inside.has(maker[o]))) continue;
        seen.add(o);
        (is_data(objects[o].role) ? inputs : params).push(o);
      }
      for (const o of morphisms[i].outputs)
        if (given.has(o) || readers[o].some((r) => !inside.has(r) && which(r))) outputs.push(o);
    }
    return { inputs, params, outputs, morphisms: all };
  };
  const op = (i: number): OpNode =>
    add({
      kind: "op",
      key: morphisms[i].source,
      name: last_part(path_of(morphisms[i].source)),
      morphism: i,
      ...surface([i]),
    });
  // What a box is but for its place: its ops with their constants and types, and how they are joined.
  const shape_of = (all: number[], path: string) => {
    const local = new Map<number, number>(),
      number = (o: number) => {
        if (!local.has(o)) local.set(o, local.size);
        return local.get(o);
      };
    return all
      .map((i) => {
        const m = morphisms[i];
        return `${m.source.slice(path.length)} ${m.op}(${m.inputs.map(number)})${m.outputs.map((o) => `${number(o)}:${objects[o].dtype}[${objects[o].axes.map((a) => a.size)}]`)}${JSON.stringify(m.attrs)}`;
      })
      .join("\n");
  };
  const all_of = (child: number | Draft): number[] =>
    typeof child === "number" ? [child] : child.children.flatMap(all_of);
  const box = (draft: Draft): BoxNode => {
    const all = all_of(draft).sort((a, b) => a - b);
    const node = add<BoxNode>({
      kind: "box",
      key: draft.path,
      name: last_part(draft.path),
      children: [],
      shape: shape_of(all, draft.path),
      gathered: false,
      ...surface(all),
    });
    node.children = children_of(draft);
    return node;
  };
  const children_of = (draft: Draft): TreeNode[] => {
    const nodes: TreeNode[] = [],
      families = new Map<string, Draft[]>();
    for (const child of draft.children) {
      const family = typeof child === "number" ? null : /^(.*)\[\d+\]$/.exec(child.path);
      if (family) families.set(family[1], [...(families.get(family[1]) ?? []), child as Draft]);
    }
    for (const child of draft.children) {
      if (typeof child === "number") {
        nodes.push(op(child));
        continue;
      }
      const family = /^(.*)\[\d+\]$/.exec(child.path);
      if (!family) {
        nodes.push(box(child));
        continue;
      }
      const members = families.get(family[1])!;
      if (members[0] !== child) continue;
      const repeat = add<RepeatNode>({
        kind: "repeat",
        key: `${family[1]}^`,
        name: last_part(family[1]),
        boxes: [],
        variants: [],
        ...surface(members.flatMap(all_of).sort((a, b) => a - b)),
      });
      repeat.boxes = members.map(box);
      repeat.boxes.forEach((b, l) => {
        const variant = repeat.variants.find((v) => v.shape === b.shape);
        if (variant) variant.indices.push(l);
        else repeat.variants.push({ shape: b.shape, indices: [l] });
      });
      nodes.push(repeat);
    }
    return nodes;
  };
  const gather = (nodes: TreeNode[]): TreeNode[] => {
    const first = nodes.findIndex((n) => n.kind === "repeat");
    if (first < 0) return nodes;
    const last = nodes.findLastIndex((n) => n.kind === "repeat");
    const group = (name: string, members: TreeNode[]): TreeNode[] => {
      if (members.length === 0) return [];
      return [
        add<BoxNode>({
          kind: "box",
          key: `(${name})`,
          name,
          children: members,
          shape: "",
          gathered: true,
          ...surface(members.flatMap((n) => n.morphisms).sort((a, b) => a - b)),
        }),
      ];
    };
    // What the chain needs stands before it; of the rest, what leads to something other than numbers for people is the readout.
    const needed = new Set<number>();
    const need = (i: number) => {
      if (needed.has(i)) return;
      needed.add(i);
      for (const o of morphisms[i].inputs) if (maker[o] >= 0) need(maker[o]);
    };
    for (let k = first; k <= last; k++) nodes[k].morphisms.forEach(need);
    const outside = [...nodes.slice(0, first), ...nodes.slice(last + 1)];
    const before = outside.filter((n) => n.morphisms.every((i) => needed.has(i))),
      after = outside.filter((n) => !before.includes(n));
    const metric = (n: TreeNode) =>
      n.outputs.length > 0 && n.outputs.every((o) => objects[o].role === "metric" || given.has(o));
    const loss = after.filter(metric);
    return [
      ...group("embed", before),
      ...nodes.slice(first, last + 1),
      ...group(
        "readout",
        after.filter((n) => !loss.includes(n)),
      ),
      ...group("loss", loss),
    ];
  };
  const everything = surface(morphisms.map((_, i) => i).filter(which));
  const root: BoxNode = {
    kind: "box",
    key: "",
    name: scheme.name,
    children: gather(children_of(top)),
    shape: "",
    gathered: false,
    ...everything,
  };
  const taken = new Set<string>(),
    object_keys = objects.map((o) => {
      let key = `o:${o.source}`;
      while (taken.has(key)) key += "'";
      taken.add(key);
      return key;
    });
  return { scheme, root, maker, readers, by_key, object_keys };
}
