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
import { locate_box, operand_of, taken_off, type TakenOff } from "./operands";
import {
  all_terms,
  statements,
  type Found,
  type Place,
  type WrittenBox,
  type WrittenDocument,
  type WrittenTerm,
} from "./written";
import { ask_for_name, change_text, offer, place_of_byte } from "./documents";

let read: { text: string; document: WrittenDocument } | null = null;
export async function document_of(file: string, text: string): Promise<WrittenDocument | null> {
  if (read?.text === text) return read.document;
  const answer = await ask<{ document: WrittenDocument }>(["edit"], {
    stdin: JSON.stringify({ file, text, read: true }),
    drafts: project.drafts(),
  });
  if (!answer.ok) {
    project.refuse(answer.error.message);
    return null;
  }
  read = { text, document: answer.result.document };
  return read.document;
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
// An edit, a sentence why there is none, that the call is not written as one, or a question.
type Wanted = object | Question | string | null;
class Question {
  constructor(
    readonly asks: string,
    readonly edits: Record<string, object>,
  ) {}
}
const anyway = "Change it all the same";
const no_call = "This is not written in the text as one call, so it cannot be changed here.";

// `after` is told where the text says what was made, in bytes.
type After = (at: Place) => Promise<void>;
// An edit that is refused says why, below the drawing and to whoever asked.
export async function edit(make: (present: Present) => Wanted, after?: After): Promise<string | null> {
  const made = await make_edit(make, after);
  ended.edits++;
  return made;
}
// An edit is of the text from which it was made. Where somebody typed meanwhile it is made once more, of the present one.
async function make_edit(make: (present: Present) => Wanted, after?: After): Promise<string | null> {
  const refuse = (why: string) => {
    project.refuse(why);
    return why;
  };
  for (let tries = 0; tries < 20; tries++) {
    const open = await target(() => void edit(make, after));
    if (!open) return null;
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
    if (!scheme || !document) return project.message?.text ?? no_call;
    let wanted = make({ document, scheme });
    if (wanted instanceof Question) {
      const { asks, edits } = wanted,
        choice = await project.choose(asks, Object.keys(edits));
      if (choice === null) return null;
      if (open.text !== text) continue;
      wanted = edits[choice];
    }
    if (wanted === null || typeof wanted === "string") return refuse(wanted ?? no_call);
    const answer = await ask<{ text: string; made: Place; breaks?: string[] }>(["edit"], {
      stdin: JSON.stringify({ file, text: sent, edit: wanted }),
      drafts: project.drafts(),
    });
    if (open.text !== text) continue;
    if (!answer.ok) return refuse(answer.error.message);
    const { breaks } = answer.result;
    if (breaks) {
      const choice = await project.choose(`After this edit ${breaks.join("; ")}.`, [anyway]);
      if (choice === null) return null;
      if (open.text !== text) continue;
    }
    const now = without_returns(answer.result.text).text,
      place = (byte: number) => place_of_byte(now, byte, open.crlf);
    change_text(file, now, { from: place(answer.result.made.from), to: place(answer.result.made.to) });
    void after?.(answer.result.made);
    return null;
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
// The place of the operand that an arrow from an object to a call stands for, or a sentence why it is not known.
function operand_at(present: Present, call: Call, object: string): { from: number; to: number } | string | null {
  const found = term_of(present, call),
    morphism = morphism_of(present.scheme, call);
  if (!found) return null;
  const operand = operand_of(present.document, present.scheme, found, morphism, object);
  return typeof operand === "string" ? operand : span(operand);
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
// Before a call, on its way from an object.
export const insert_before = (call: Call, object: string, op: string) =>
  edit((p) => {
    if (is_gone(p, call)) return gone;
    const at = operand_at(p, call, object);
    return typeof at === "string" ? at : at && { kind: "insert", at, call: with_hole(op) };
  }, select_inserted(call.source));
// A call that reads several objects leaves the one that somebody chooses.
function deletion(off: TakenOff | string | null): Wanted {
  if (off === null || typeof off === "string") return off;
  const edit = (operand: number | string) => ({ kind: "delete", at: off.at, operand }),
    [first, ...more] = off.operands;
  if (more.length === 0) return edit(first.as);
  const edits = Object.fromEntries(off.operands.map((o) => [`${short(o.text)} stays`, edit(o.as)]));
  return new Question(`What stays in the place of ${short(off.text)}?`, edits);
}
const short = (text: string) => (text.length > 48 ? `${text.slice(0, 47)}…` : text);
export const delete_call = (call: Call) =>
  edit((p) => {
    const found = term_of(p, call);
    if (!found) return is_gone(p, call) ? gone : null;
    return deletion(taken_off(p.document, p.scheme, found.term, { found, morphism: morphism_of(p.scheme, call) }));
  });
// What is done to the call of a box: where it is written, and which box it calls.
const edit_box = (key: string, make: (at: { from: number; to: number }, box: string) => object, after?: After) =>
  edit(({ document }) => {
    const found = locate_box(document, key);
    if (found === null || typeof found === "string") return found;
    const at = span(found.call);
    return at && make(at, found.call.word!);
  }, after);
export const insert_after_box = (key: string, op: string) =>
  edit_box(key, (at) => ({ kind: "insert", at, call: with_hole(op) }), select_inserted(key));
export const delete_box = (key: string) =>
  edit(({ document, scheme }) => {
    const found = locate_box(document, key);
    if (found === null || typeof found === "string") return found;
    return deletion(taken_off(document, scheme, found.call, found.around));
  });
// Instead of one object a call reads the value of a name.
export const connect_to = (call: Call, object: string, value: string) =>
  edit((p) => {
    if (is_gone(p, call)) return gone;
    const at = operand_at(p, call, object);
    return typeof at === "string" ? at : at && { kind: "connect", at, value };
  });
export const set_size = (name: string, to: string) =>
  edit(({ document: d }) => {
    const preset = settings.model.split(":")[1],
      axis = d.axes.find((a) => a.name === name),
      number = axis ? undefined : d.numbers.find((a) => a.name === name),
      written = axis ?? number;
    if (!written) return `There is no axis or number '${name}' in this text.`;
    // The preset that one looks at is changed, and not the others, which go by the text.
    if (d.presets.some((p) => p.name === preset)) return { kind: "set", preset, setting: name, to };
    const edit = axis ? { kind: "set", axis: name, to } : { kind: "set", number: name, to },
      others = d.presets.filter((p) => !p.settings.some((s) => s.name === name)).map((p) => p.name);
    if (written.value.kind === "number" && others.length === 0) return edit;
    const of = others.length > 0 ? `, for the presets ${others.join(", ")} too` : "";
    return new Question(`${name} is ${written.value.text} here${of}.`, { [`Write ${name}=${to}`]: edit });
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
// What is folded for calls of one box: the one of them that holds all others, or else statements, from the first to the last.
interface Folded {
  what: { at: { from: number; to: number } } | { statements: [number, number] };
  box: WrittenBox;
  range: { from: number; to: number };
  lines: [number, number];
}
function folded(p: Present, calls: Call[]): Folded | string | null {
  const found = calls.map((call) => term_of(p, call));
  if (calls.some((call) => is_gone(p, call))) return gone;
  if (found.length === 0 || found.some((f) => !f?.term.span)) return null;
  const all = found as Found[],
    box = all[0].box;
  if (all.some((f) => f.box !== box)) return "What is folded must stand in one box.";
  const outer = all.find(({ term }) => all.every((f) => holds(term.span!, f.term.span!)));
  if (outer) {
    const { line = 0 } = outer.term.span!;
    return { what: { at: span(outer.term)! }, box, range: outer.term.span!, lines: [line, line] };
  }
  const numbers = all.map((f) => f.statement),
    ends: [number, number] = [Math.min(...numbers), Math.max(...numbers)],
    [first, last] = ends.map((n) => statements(box)[n].span);
  if (!first || !last) return null;
  const range = { from: first.from, to: last.to };
  return { what: { statements: ends }, box, range, lines: [first.line ?? 0, last.line ?? 0] };
}
const holds = (a: Place, b: Place) => a.from <= b.from && b.to <= a.to;
// Says which calls a fold takes; nothing where that is not known now, as of a text that nobody can change.
export async function said_of_fold(calls: Call[]): Promise<string> {
  const open = project.find(settings.file()),
    text = open?.text,
    scheme = await results.present();
  if (!open || text === undefined || !scheme || open.text !== text) return "";
  const document = await document_of(open.path, with_returns(text, open.crlf));
  const fold = document && folded({ document, scheme }, calls);
  if (!fold || typeof fold === "string") return "";
  const ops = new Map<string, string>(),
    place_of = ({ from, to }: { from: number; to: number }) => `${from} ${to}`,
    op_of = (t: WrittenTerm) => t.span && ops.get(place_of(t.span));
  for (const m of scheme.morphisms) if (m.at) ops.set(place_of(m.at), m.op);
  const taken = [...all_terms(document!)]
      .map((f) => f.term)
      .filter((t) => t.span && holds(fold.range, t.span) && (t.box || op_of(t))),
    names = taken.map((t) => (t.kind === "call" ? t.word! : op_of(t)!)),
    [first, last] = fold.lines;
  const where = first === last ? `line ${first}` : `lines ${first} to ${last}`,
    whole = "statements" in fold.what ? `all of ${where}` : `a term of ${where}`;
  return `Folds ${whole}: ${taken.length === 1 ? "1 call" : `${taken.length} calls`} (${names.join(", ")}).`;
}
// The box that was made is selected, for what it was made of is in it now.
const select_folded =
  (near: string, name: string): After =>
  async () => {
    const before = view.selected,
      scheme = await results.present();
    if (!scheme || (view.selected !== before && view.selected.length > 0)) return;
    const around = near.slice(0, near.lastIndexOf(".") + 1);
    for (const { source } of scheme.morphisms) {
      if (!source.startsWith(around)) continue;
      const part = source.slice(around.length).split(".")[0];
      if (part.replace(/#\d+$/, "") !== name || source === around + part) continue;
      view.select({ kind: "box", source: around + part });
      return;
    }
    view.select(null);
  };
export const fold_calls = (calls: Call[], name: string) =>
  edit(
    (p) => {
      const fold = folded(p, calls);
      if (fold === null || typeof fold === "string") return fold;
      return { kind: "fold", ...("at" in fold.what ? {} : { box: fold.box.name }), ...fold.what, name };
    },
    select_folded(calls[0]?.source ?? "", name),
  );
