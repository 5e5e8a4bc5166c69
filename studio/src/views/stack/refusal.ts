// The sentence with which a stack is refused names paths of the scheme; this finds them, so that they can be lit and clicked.
import type { SchemeJson } from "../../api/json";

export interface Piece {
  text: string;
  source?: string;
}

const path = /[A-Za-z_]\w*(?:\[\d+\])?(?:#\d+)?(?:\.[A-Za-z_]\w*(?:\[\d+\])?(?:#\d+)?)*(?::[\w.]+)?/g;
const numbers = (text: string) => (text.match(/\d+/g) ?? []).map(Number);

// A sentence in pieces; those that are sources of the scheme say so. A word in quotes may name anything; bare words must look like a
// path (a dot, a bracket or a number sign), for "block" and "norm" are also words of the language.
export function pieces_of(message: string, scheme: SchemeJson | undefined): Piece[] {
  if (!scheme) return [{ text: message }];
  const known = new Set([...scheme.objects.map((o) => o.source), ...scheme.morphisms.map((m) => m.source)]);
  const boxes = new Set(
    [...known].flatMap((s) => {
      const parts = s.split(":")[0].split(".");
      return parts.slice(1).map((_, i) => parts.slice(0, i + 1).join("."));
    }),
  );
  const out: Piece[] = [];
  let from = 0;
  for (const m of message.matchAll(path)) {
    const quoted = message[m.index - 1] === "'" || message[m.index - 1] === '"';
    if (!(quoted || /[.[#:]/.test(m[0])) || !(known.has(m[0]) || boxes.has(m[0]))) continue;
    if (m.index > from) out.push({ text: message.slice(from, m.index) });
    out.push({ text: m[0], source: m[0] });
    from = m.index + m[0].length;
  }
  if (from < message.length) out.push({ text: message.slice(from) });
  return out;
}
// Everything that the sentence points at: paths, all that is inside of a box, and states of the chain where it counts them.
export function offenders(message: string, scheme: SchemeJson | undefined): string[] {
  if (!scheme) return [];
  const named = pieces_of(message, scheme).flatMap((p) => (p.source ? [p.source] : []));
  const all = [...scheme.objects.map((o) => o.source), ...scheme.morphisms.map((m) => m.source)];
  const lit = new Set(named.flatMap((n) => (all.includes(n) ? [n] : all.filter((s) => s.startsWith(`${n}.`)))));
  const cut = /stages begin at ([\d, and]+), and \w+ keeps ([\d, and]+)/.exec(message);
  if (cut) {
    const kept = new Set(numbers(cut[2]));
    for (const n of numbers(cut[1])) {
      const id = scheme.chain.states[n];
      if (!kept.has(n) && id !== undefined) lit.add(scheme.objects[id].source);
    }
  }
  return [...lit];
}
