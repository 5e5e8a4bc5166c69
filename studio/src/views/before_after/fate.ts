// What became of a thing from one step to the next, by its path: its facets before and after, and who said so.
import type { Applied, SchemeJson } from "../../api/json";
import { path_of, type_text } from "../../state/format";

export interface Fate {
  source: string;
  before: string;
  after: string;
  kind: "new" | "gone" | "changed" | "same";
}

// Residence and precision of what lasts from step to step are only said of it, and make nothing: `adjoint show --diff` leaves them out
// as well. Its tier is where its bytes are.
const lasting = new Set(["parameter", "state", "input", "control"]);
function words(o: SchemeJson["objects"][number]): string {
  const realized = lasting.has(o.role) ? [] : [o.residence, o.precision];
  const placed = (o.placement ?? []).filter((p) => p.spread !== "replicated").map((p) => `${p.spread} over ${p.over}`);
  return [type_text(o), ...realized, o.tier, o.frozen ? "frozen" : "", ...placed, o.stage ? `stage ${o.stage - 1}` : ""]
    .filter((w) => w)
    .join(", ");
}
const call = (s: SchemeJson, i: number) => {
  const m = s.morphisms[i];
  return `${m.op}(${m.inputs.map((o) => s.objects[o].source).join(", ")})`;
};

// Objects and calls by source; a source that several have is told by its place among them.
export function described(s: SchemeJson): Map<string, string> {
  const out = new Map<string, string>();
  const put = (source: string, text: string) => {
    let key = source;
    for (let n = 2; out.has(key); n++) key = `${source} (${n})`;
    out.set(key, text);
  };
  s.objects.forEach((o) => put(o.source, words(o)));
  s.morphisms.forEach((m, i) => put(`call ${m.source}`, call(s, i)));
  return out;
}
export function fates(before: SchemeJson, after: SchemeJson): Fate[] {
  const a = described(before),
    b = described(after),
    out: Fate[] = [];
  for (const [source, was] of a) {
    const is = b.get(source);
    if (is === undefined) out.push({ source, before: was, after: "", kind: "gone" });
    else if (is !== was) out.push({ source, before: was, after: is, kind: "changed" });
  }
  for (const [source, is] of b) if (!a.has(source)) out.push({ source, before: "", after: is, kind: "new" });
  return out;
}
export const plain = (source: string) => path_of(source.replace(/^call /, "").replace(/ \(\d+\)$/, ""));
// Which functors of a stack had a rule that acted on this path.
export function sayers(applied: Applied[], path: string): { functor: string; branch: string }[] {
  const out: { functor: string; branch: string }[] = [];
  for (const a of applied)
    for (const r of a.rules) {
      if (/: (left alone|let )/.test(r.branch)) continue;
      if (r.sources.some((s) => path_of(s) === path))
        out.push({ functor: a.functor, branch: r.branch.replace(/^\S*?(\w+\.functor):(\d+): /, "line $2: ") });
    }
  return out;
}
