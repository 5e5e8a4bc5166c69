// Edits of the drawing. A thing in the drawing is found in the text by the place of its call; `adjoint edit` changes the text there
// and nowhere else, and the editor takes the new text as one step of undo.
import { tick } from "svelte";
import { ask } from "../api/client";
import type { SchemeJson } from "../api/json";
import { project, with_returns, without_returns, type OpenText } from "../state/project.svelte";
import { results } from "../state/results.svelte";
import { settings } from "../state/settings.svelte";
import { ended } from "../state/timings";
import { view } from "../state/view.svelte";
import { ask_for_name, change_text, offer, place_of_byte } from "./documents";

interface Place {
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

let read: { text: string; document: WrittenDocument } | null = null;
export async function document_of(file: string, text: string): Promise<WrittenDocument | null> {
  if (read?.text === text) return read.document;
  const answer = await ask<{ document: WrittenDocument }>(["edit"], {
    stdin: JSON.stringify({ file, text, read: true }),
    drafts: project.drafts(),
  });
  if (!answer.ok) {
    project.say(answer.error.message, "bad");
    return null;
  }
  read = { text, document: answer.result.document };
  return read.document;
}
const statements = (b: WrittenBox) => b.statements ?? b.body ?? [];
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
// The term of a morphism's call: the one that is written where the program says, and of several that begin there the one that is this op.
export function locate(d: WrittenDocument, scheme: SchemeJson, morphism: number): Found | null {
  const m = scheme.morphisms[morphism],
    at = m.at;
  if (!at) return null;
  const here: Found[] = [];
  for (const f of all_terms(d)) {
    const s = f.term.span;
    if (!s) continue;
    if (at.to !== undefined && s.from === at.from && s.to === at.to) return f;
    if (at.from !== undefined ? s.from === at.from : s.line === at.line && s.column === at.column) here.push(f);
  }
  const calls = here.filter((f) => f.term.kind !== "name" && f.term.kind !== "number");
  return (
    calls.find((f) => f.term.word === m.op) ??
    calls.find((f) => f.term.kind === "binary" || f.term.kind === "negate") ??
    calls[0] ??
    null
  );
}
// Calls in the order in which they are made, operands before the call that reads them; of those in a `when` not all are.
function* calls_in(t: WrittenTerm, chosen = false): Generator<{ term: WrittenTerm; chosen: boolean }> {
  const inside = chosen || t.kind === "when";
  for (const a of t.args ?? []) yield* calls_in(a, inside);
  for (const k of t.keywords ?? []) yield* calls_in(k.value, inside);
  if (t.kind === "call") yield { term: t, chosen };
}
const name_of = (t: WrittenTerm) => t.keywords?.find((k) => k.name === "name")?.value.text;
const one_of_several = "A condition of the text decides which of several calls this is: it is changed in the text.";
// The box that one part of a path stands for: what a call says as its name, or the box's own name, from the second call on with a number.
function box_call(calls: { term: WrittenTerm; chosen: boolean }[], part: string): WrittenTerm | string | null {
  const named = calls.filter(({ term }) => term.box && name_of(term) === part);
  if (named.length > 0) return named.length === 1 ? named[0].term : one_of_several;
  const same = calls.filter(({ term }) => term.box && term.word === part.replace(/#\d+$/, "")),
    unnamed = same.filter(({ term }) => name_of(term) === undefined);
  if (unnamed.length < 2) return unnamed[0]?.term ?? null;
  if (same.some(({ chosen }) => chosen)) return one_of_several;
  const taken = new Set<string>();
  let number = 0;
  for (const { term } of calls) {
    const name = name_of(term),
      counted = same.some((s) => s.term === term);
    if (counted) number++;
    if (name !== undefined) taken.add(name);
    if (name !== undefined || !counted) continue;
    let n = number,
      component = n > 1 ? `${term.word}#${n}` : term.word!;
    while (taken.has(component)) component = `${term.word}#${++n}`;
    taken.add(component);
    if (component === part) return term;
  }
  return null;
}
// The call of a box, or a sentence why it is not known. The program says only where calls of ops are written. A box is looked up by
// its path, part by part from `model` downwards: each part is a call in the box that the part before it calls.
export function locate_box(d: WrittenDocument, key: string): WrittenTerm | string | null {
  let box = d.boxes.find((b) => b.name === "model"),
    found: WrittenTerm | string | null = null;
  for (const part of key.replace(/\^?'*$/, "").split(".")) {
    const calls = box ? statements(box).flatMap((s) => s.values.flatMap((v) => [...calls_in(v)])) : [];
    found = box_call(calls, part.replace(/\[\d+\]$/, ""));
    if (found === null || typeof found === "string") return found;
    const { word } = found;
    box = d.boxes.find((b) => b.name === word);
  }
  return found;
}
const is_object = (t: WrittenTerm) =>
  t.kind !== "number" &&
  t.kind !== "text" &&
  t.is === undefined &&
  (t.kind !== "name" || t.reads !== undefined || !t.is);
// Which of a call's arguments stands for the k-th object that the op reads: none rather than another one.
export function operand(term: WrittenTerm, k: number): WrittenTerm | null {
  const all = [...(term.args ?? []), ...(term.keywords ?? []).map((q) => q.value)]
    .filter(is_object)
    .filter((t) => has_value(t));
  return all[k] ?? (all.length === 1 ? all[0] : null);
}
function has_value(t: WrittenTerm): boolean {
  for (const q of terms(t)) if (q.reads !== undefined || q.kind === "call") return true;
  return false;
}

// A call that is meant, as the drawing names it. Whoever asks holds this and not a place of a list: when the answer is yes, the text
// may be another one.
export interface Call {
  source: string;
  op: string;
}
export function call_of(scheme: SchemeJson, morphism: number): Call {
  const { source, op } = scheme.morphisms[morphism];
  return { source, op };
}
function morphism_of(scheme: SchemeJson, call: Call): number {
  const same = scheme.morphisms.findIndex((m) => m.source === call.source && m.op === call.op);
  return same >= 0 ? same : scheme.morphisms.findIndex((m) => m.source === call.source);
}

// The text that is drawn, if it can be changed; else the page offers a copy, and what was wanted is done once there is one.
async function target(then: () => void): Promise<OpenText | null> {
  const file = settings.file();
  if (!file) {
    const library = project.open.find((t) => t.library && t.path === settings.model);
    if (library) {
      await ask_for_name(library.path);
      offer.then = then;
      offer.pending = null;
    }
    return null;
  }
  const text = await project.open_file(file);
  await tick();
  return text ?? null;
}
// What an edit is made of: the text as it is written, and the scheme that it is.
interface Present {
  document: WrittenDocument;
  scheme: SchemeJson;
}
type Wanted = object | string | null; // an edit, a sentence why there is none, or that the call is not written as one
const no_call = "This is not written in the text as one call, so it cannot be changed here.";

// `after` is told where the text says what was made, in bytes.
type After = (at: Place) => Promise<void>;
export async function edit(make: (present: Present) => Wanted, after?: After): Promise<boolean> {
  const made = await make_edit(make, after);
  ended.edits++;
  return made;
}
// An edit is of the text from which it was made. Where somebody typed meanwhile it is made once more, of the present one.
async function make_edit(make: (present: Present) => Wanted, after?: After): Promise<boolean> {
  const refuse = (why: string) => {
    project.say(why, "bad");
    return false;
  };
  for (let tries = 0; tries < 20; tries++) {
    const open = await target(() => void edit(make, after));
    if (!open) return false;
    const text = open.text,
      file = open.path,
      sent = with_returns(text, open.crlf);
    const scheme = await results.present();
    if (!scheme && open.text === text)
      return refuse(
        `The drawing cannot be changed before its text is whole: ${results.forward.mistake?.message ?? "it has no answer yet"}`,
      );
    const document = scheme && open.text === text ? await document_of(file, sent) : null;
    if (open.text !== text) continue;
    if (!document || !scheme) return false;
    const wanted = make({ document, scheme });
    if (wanted === null || typeof wanted === "string") return refuse(wanted ?? no_call);
    const answer = await ask<{ text: string; span: Place }>(["edit"], {
      stdin: JSON.stringify({ file, text: sent, edit: wanted }),
      drafts: project.drafts(),
    });
    if (open.text !== text) continue;
    if (!answer.ok) return refuse(answer.error.message);
    const now = without_returns(answer.result.text).text,
      place = (byte: number) => place_of_byte(now, byte, open.crlf);
    change_text(file, now, { from: place(answer.result.span.from), to: place(answer.result.span.to) });
    void after?.(answer.result.span);
    return true;
  }
  return refuse("The text changes faster than the drawing can change it: try again.");
}
const span = (t: WrittenTerm | null | undefined) => (t?.span ? { from: t.span.from, to: t.span.to } : null);
// "gelu" becomes gelu(_), "dropout(0.1)" dropout(_, 0.1), and what has a hole stays as it is.
export function with_hole(call: string): string {
  const t = call.trim();
  if (/\b_\b|(^|[(,\s])_([),\s]|$)/.test(t)) return t;
  const m = /^([\w]+)\s*(?:\((.*)\))?$/s.exec(t);
  return m ? `${m[1]}(_${m[2]?.trim() ? `, ${m[2].trim()}` : ""})` : t;
}

// The term of a call, and which of its arguments stands for an object.
const term_of = ({ document, scheme }: Present, call: Call): Found | null => {
  const morphism = morphism_of(scheme, call);
  return morphism < 0 ? null : locate(document, scheme, morphism);
};
const is_data = (role: string) => !["parameter", "state", "control"].includes(role);
// Which of an op's objects this is, parameters not counted; -1: none of them.
export function operand_of(scheme: SchemeJson, morphism: number, object: string): number {
  const data = scheme.morphisms[morphism].inputs.map((o) => scheme.objects[o]).filter((o) => is_data(o.role));
  return data.findIndex((o) => o.source === object);
}
function operand_at(present: Present, call: Call, object: string | null) {
  const found = term_of(present, call),
    morphism = morphism_of(present.scheme, call);
  return found && span(operand(found.term, object === null ? 0 : operand_of(present.scheme, morphism, object)));
}
const gone = "This is no longer in the drawing.";
const is_gone = (present: Present, call: Call) => morphism_of(present.scheme, call) < 0;

// What was inserted is selected: of a repetition's boxes in the one in which it was asked for, unless somebody has selected something
// else before it is drawn.
const select_inserted =
  (near: string): After =>
  async ({ from, to }) => {
    const before = view.selected,
      scheme = await results.present();
    if (!scheme || view.selected !== before) return;
    const made = [...scheme.morphisms.entries()].filter(([, m]) => m.at?.from === from && m.at.to === to),
      box = near.slice(0, near.lastIndexOf(".") + 1),
      [id, m] = made.find(([, m]) => m.source.startsWith(box)) ?? made[0] ?? [];
    if (m) view.select({ kind: "morphism", source: m.source, id });
  };
export const insert_after = (call: Call, op: string) =>
  edit((p) => {
    const at = span(term_of(p, call)?.term);
    return is_gone(p, call) ? gone : at && { kind: "insert", at, call: with_hole(op) };
  }, select_inserted(call.source));
// Before a call, on its way from an object (or from the first that it reads).
export const insert_before = (call: Call, object: string | null, op: string) =>
  edit((p) => {
    const at = operand_at(p, call, object);
    return is_gone(p, call) ? gone : at && { kind: "insert", at, call: with_hole(op) };
  }, select_inserted(call.source));
export const delete_call = (call: Call) =>
  edit((p) => {
    const at = span(term_of(p, call)?.term);
    return is_gone(p, call) ? gone : at && { kind: "delete", at, operand: 0 };
  });
// What is done to the call of a box: where it is written, and which box it calls.
const edit_box = (key: string, make: (at: { from: number; to: number }, box: string) => object, after?: After) =>
  edit(({ document }) => {
    const found = locate_box(document, key);
    if (found === null || typeof found === "string") return found;
    const at = span(found);
    return at && make(at, found.word!);
  }, after);
export const insert_after_box = (key: string, op: string) =>
  edit_box(key, (at) => ({ kind: "insert", at, call: with_hole(op) }), select_inserted(key));
export const delete_box = (key: string) => edit_box(key, (at) => ({ kind: "delete", at, operand: 0 }));
// Instead of one object (or the first) a call reads the value of a name.
export const connect_to = (call: Call, object: string | null, value: string) =>
  edit((p) => {
    const at = operand_at(p, call, object);
    return is_gone(p, call) ? gone : at && { kind: "connect", at, value };
  });
export const set_size = (name: string, to: string) =>
  edit(({ document: d }) => {
    const preset = settings.model.split(":")[1],
      own = d.presets.find((p) => p.name === preset);
    if (own && own.settings.some((s) => s.name === name)) return { kind: "set", preset, setting: name, to };
    if (d.axes.some((a) => a.name === name)) return { kind: "set", axis: name, to };
    if (d.numbers.some((a) => a.name === name)) return { kind: "set", number: name, to };
    return `There is no axis or number '${name}' in this text.`;
  });
export const repeat_box = (key: string, times: string) =>
  edit_box(key, (at) => ({
    kind: "repeat",
    at,
    ...(times.trim() && times.trim() !== "1" ? { times: times.trim() } : {}),
  }));
export const unfold_box = (key: string) => edit_box(key, (at) => ({ kind: "unfold", at }));
export const rename_box = (key: string, to: string) => edit_box(key, (_, box) => ({ kind: "rename", box, to }));
// The value that a statement names: that of the call's own statement.
export const rename_value = (call: Call, to: string) =>
  edit((p) => {
    const found = term_of(p, call);
    if (!found) return is_gone(p, call) ? gone : null;
    const { names } = statements(found.box)[found.statement];
    return {
      kind: "rename",
      box: found.box.name,
      statement: found.statement,
      name: names[Math.min(found.value, names.length - 1)],
      to,
    };
  });
export const rename_input = (name: string, to: string) => edit(() => ({ kind: "rename", box: "model", name, to }));
// Calls of one box, from the first statement to the last, become a box of their own; a single call within one does, too.
export const fold_calls = (calls: Call[], name: string) =>
  edit((p) => {
    const found = calls.map((call) => term_of(p, call));
    if (calls.some((call) => is_gone(p, call))) return gone;
    if (found.length === 0 || found.some((f) => !f)) return null;
    const all = found as Found[],
      box = all[0].box;
    if (all.some((f) => f.box !== box)) return "What is folded must stand in one box.";
    const numbers = all.map((f) => f.statement),
      first = Math.min(...numbers),
      last = Math.max(...numbers);
    if (first !== last || all.length > 1) return { kind: "fold", box: box.name, statements: [first, last], name };
    const at = span(all[0].term);
    return at && { kind: "fold", at, name };
  });
