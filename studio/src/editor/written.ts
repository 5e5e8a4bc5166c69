// A text of a model as `adjoint edit` reads it: boxes, statements and terms, with their places.
export interface Place {
  from: number;
  to: number;
  line?: number;
  column?: number;
}
export interface WrittenTerm {
  kind: string;
  text: string;
  word?: string;
  number?: number;
  args?: WrittenTerm[];
  keywords?: { name: string; value: WrittenTerm; span?: Place }[];
  repeat?: WrittenTerm;
  box?: boolean;
  reads?: { statement?: number; formal?: number; name?: number };
  is?: string;
  span?: Place;
}
export interface WrittenStatement {
  names: string[];
  values: WrittenTerm[];
  name_spans?: Place[];
  span?: Place;
}
export interface WrittenBox {
  name: string;
  formals: { name: string; span?: Place }[];
  statements: WrittenStatement[];
  body?: WrittenStatement[];
  span?: Place;
}
export interface WrittenDocument {
  axes: { name: string; value: WrittenTerm }[];
  numbers: { name: string; value: WrittenTerm }[];
  presets: { name: string; settings: { name: string }[] }[];
  boxes: WrittenBox[];
}
export interface Found {
  box: WrittenBox;
  statement: number;
  value: number;
  term: WrittenTerm;
}

export const statements = (b: WrittenBox) => b.statements ?? b.body ?? [];
function* terms(t: WrittenTerm): Generator<WrittenTerm> {
  yield t;
  for (const a of t.args ?? []) yield* terms(a);
  for (const k of t.keywords ?? []) yield* terms(k.value);
}
export function* all_terms(d: WrittenDocument): Generator<Found> {
  for (const box of d.boxes)
    for (const [statement, s] of statements(box).entries())
      for (const [value, v] of s.values.entries()) for (const term of terms(v)) yield { box, statement, value, term };
}
