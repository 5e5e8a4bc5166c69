// Who holds what: objects that live from step to step, and gradients as the update reads them, by how they lie on the mesh.
import type { SchemeJson, SchemeObject } from "../../api/json";
import { path_of } from "../../state/format";

export interface Held {
  what: string;
  stage: number | null;
  on: Record<string, string>;
  along: Record<string, Set<string>>;
  objects: SchemeObject[];
  ids: number[]; // of them in the scheme
  bytes: number;
  whole: number;
}

// How an object lies along each axis of the mesh, in words, and which of its own axes is cut there.
function lies(
  o: SchemeObject,
  mesh: { name: string; size: number }[],
): { on: Record<string, string>; cut: Record<string, string> } {
  const on: Record<string, string> = {},
    cut: Record<string, string> = {};
  for (const axis of mesh) {
    const p = o.placement?.find((q) => q.over === axis.name);
    if (!p || p.spread === "replicated") on[axis.name] = axis.name === "stage" ? "" : "whole";
    else if (p.spread === "partial") on[axis.name] = "a term of the sum";
    else {
      on[axis.name] = `1/${axis.size}`;
      if (p.axis !== undefined) cut[axis.name] = o.axes[p.axis]?.name || `axis ${p.axis}`;
    }
  }
  return { on, cut };
}
// Bytes of all pieces together: along every axis the size before it was cut.
function whole_bytes(o: SchemeObject): number {
  let factor = 1;
  const seen = new Set<number>();
  for (const p of (o.placement ?? []) as { spread: string; axis?: number; whole?: number }[]) {
    if (p.spread !== "sharded" || p.axis === undefined || !p.whole || seen.has(p.axis)) continue;
    seen.add(p.axis);
    factor *= p.whole / Math.max(1, o.axes[p.axis]?.size ?? 1);
  }
  return o.bytes * factor;
}
export function holds(scheme: SchemeJson): { lasting: Held[]; passing: Held[] } {
  const { objects, morphisms, mesh } = scheme,
    inputs = new Set(scheme.inputs),
    read = new Set<number>(),
    trained = new Set<string>();
  for (const m of morphisms)
    if (m.phase === "update") for (const i of m.inputs) if (objects[i].role === "gradient") read.add(i);
  objects.forEach((o, i) => {
    if (inputs.has(i) && o.role === "parameter") trained.add(path_of(o.source));
  });
  const lasting = new Map<string, Held>(),
    passing = new Map<string, Held>();
  const add = (to: Map<string, Held>, what: string, o: SchemeObject, id: number) => {
    const { on, cut } = lies(o, mesh),
      key = JSON.stringify([what, o.stage ?? null, on]);
    const held = to.get(key) ?? {
      what,
      stage: o.stage ?? null,
      on,
      along: {},
      objects: [],
      ids: [],
      bytes: 0,
      whole: 0,
    };
    for (const [axis, name] of Object.entries(cut)) (held.along[axis] ??= new Set()).add(name);
    held.objects.push(o);
    held.ids.push(id);
    held.bytes += o.bytes;
    held.whole += whole_bytes(o);
    to.set(key, held);
  };
  objects.forEach((o, i) => {
    if (inputs.has(i) && o.role === "parameter") add(lasting, "parameters", o, i);
    else if (inputs.has(i) && o.role === "state") add(lasting, "optimizer state", o, i);
    else if (read.has(i)) add(lasting, "gradients", o, i);
    else if (o.role === "parameter" && o.source.endsWith(":whole"))
      add(passing, "parameters, made whole while they are used", o, i);
    else if (
      o.role === "gradient" &&
      trained.has(path_of(o.source)) &&
      o.placement?.some((p) => p.spread === "partial")
    )
      add(passing, "gradients, before ranks have summed them", o, i);
    else if (inputs.has(i) && o.role === "input") add(passing, "a batch's samples", o, i);
  });
  const order = ["parameters", "gradients", "optimizer state"];
  const sorted = (m: Map<string, Held>) =>
    [...m.values()].sort(
      (a, b) => order.indexOf(a.what) - order.indexOf(b.what) || (a.stage ?? 0) - (b.stage ?? 0) || b.bytes - a.bytes,
    );
  return { lasting: sorted(lasting), passing: sorted(passing) };
}
