// Which boxes and repetitions hold a path: those that its text names, and those that gather what stands around the chain or read a
// parameter that has another box's name.
import type { SchemeJson } from "../api/json";
import { build_tree } from "../drawing/tree";
import { path_of } from "./format";

const known = new WeakMap<SchemeJson, Map<string, Set<string>>>();
function boxes(scheme: SchemeJson): Map<string, Set<string>> {
  const have = known.get(scheme);
  if (have) return have;
  const out = new Map<string, Set<string>>();
  for (const node of build_tree(scheme).by_key.values()) {
    if (node.kind === "op") continue;
    const inside = [
      ...node.morphisms.map((m) => scheme.morphisms[m].source),
      ...[...node.params, ...node.morphisms.flatMap((m) => scheme.morphisms[m].outputs)].map(
        (o) => scheme.objects[o].source,
      ),
    ];
    for (const source of inside) {
      const path = path_of(source),
        around = out.get(path);
      if (around) around.add(node.key);
      else out.set(path, new Set([node.key]));
    }
  }
  known.set(scheme, out);
  return out;
}
export function boxes_of(scheme: SchemeJson | undefined, path: string): Set<string> {
  const all = new Set(scheme && boxes(scheme).get(path));
  for (let dot = path.indexOf("."); dot >= 0; dot = path.indexOf(".", dot + 1)) all.add(path.slice(0, dot));
  for (const m of path.matchAll(/\[\d+\]/g)) all.add(`${path.slice(0, m.index)}^`);
  return all;
}
