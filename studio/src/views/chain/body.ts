// What an open op shows: its body as an expression where it has one, else what the list of ops says of it.
import type { SchemeJson } from "../../api/json";
import { type_text } from "../../state/format";
import { results } from "../../state/results.svelte";

export function body_text(scheme: SchemeJson, morphism: number): string[] {
  const m = scheme.morphisms[morphism],
    lines: string[] = [];
  const body = m.body ? scheme.bodies?.[m.body] : undefined;
  if (body) lines.push(...body.split("\n").filter((l) => l.trim()));
  const known = results.ops.find((o) => o.name === m.op);
  if (!body && known) lines.push(`${known.signature}: ${known.summary}`);
  if (known?.index_map) lines.push(known.index_map.replaceAll("->", "→"));
  const attrs = Object.entries(m.attrs).map(([k, v]) => `${k}=${Array.isArray(v) ? `[${v}]` : v}`);
  if (attrs.length > 0) lines.push(attrs.join(", "));
  for (const o of m.inputs)
    if (scheme.objects[o].role === "parameter")
      lines.push(`${scheme.objects[o].source.split(".").at(-1)}: ${type_text(scheme.objects[o])}`);
  return lines.length > 0 ? lines : [m.op];
}
