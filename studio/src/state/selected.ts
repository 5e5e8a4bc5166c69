// What is selected, found in a scheme by its source.
import type { SchemeJson, SchemeMorphism } from "../api/json";
import { build_tree } from "../drawing/tree";
import { path_of } from "./format";
import type { Selected } from "./view.svelte";

// What the drawing gathers before and behind the chain has no path of its own: calls by the name of what they are gathered in.
const gathered = (model: SchemeJson) =>
  new Map(
    build_tree(model)
      .root.children.filter((n) => n.kind === "box" && n.gathered)
      .map((n) => [n.key, new Set(n.morphisms.map((m) => path_of(model.morphisms[m].source)))]),
  );
export type FoundIn = { object: number } | { morphism: number } | { inside: SchemeMorphism[] };
// An object, a morphism, or the calls inside of a box; null where it is none of this scheme. `model`: the forward scheme.
export function find_selected(s: Selected, scheme: SchemeJson, model: SchemeJson | undefined): FoundIn | null {
  const source = s.source.replace(/'+$/, ""); // with which the drawing tells things of one path apart
  const object = scheme.objects.findIndex((o) => o.source === source),
    morphism = scheme.morphisms.findIndex((m) => m.source === source);
  if (s.kind === "object" && object >= 0) return { object };
  if (s.kind === "morphism" && s.id !== undefined && scheme.morphisms[s.id]?.source === source)
    return { morphism: s.id };
  if (morphism >= 0) return { morphism };
  if (object >= 0) return { object };
  const calls = source.startsWith("(") && model ? gathered(model).get(source) : undefined;
  const prefix = source.replace(/\^$/, "").replace(/…$/, ""),
    inside = scheme.morphisms.filter((m) => {
      const p = path_of(m.source);
      if (calls) return calls.has(p);
      return p === prefix || p.startsWith(`${prefix}.`) || (source.endsWith("^") && p.startsWith(`${prefix}[`));
    });
  return inside.length > 0 ? { inside } : null;
}
