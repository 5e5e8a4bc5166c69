// Which operand of a written call an arrow of the drawing stands for. A term is compared with an object by what it gives: a name is
// followed to the statement that made it, a head's name to what the caller hands over, and a call to the morphisms that are written
// there. Where this cannot be told, a sentence says so.
import type { SchemeJson } from "../api/json";
import { statements, type Found, type WrittenBox, type WrittenDocument, type WrittenTerm } from "./written";

// Calls in the order in which they are made, operands before the call that reads them; of those in a `when` not all are.
interface MadeCall {
  term: WrittenTerm;
  chosen: boolean;
}
function* calls_in(t: WrittenTerm, chosen = false): Generator<MadeCall> {
  const inside = chosen || t.kind === "when";
  for (const a of t.args ?? []) yield* calls_in(a, inside);
  for (const k of t.keywords ?? []) yield* calls_in(k.value, inside);
  if (t.kind === "call") yield { term: t, chosen };
}
const calls_of = (box: WrittenBox) => statements(box).flatMap((s) => s.values.flatMap((v) => [...calls_in(v)]));
const said_name = (t: WrittenTerm) => t.keywords?.find((k) => k.name === "name")?.value;
const name_of = (t: WrittenTerm) => said_name(t)?.word;
// name="block#3": such a call does not count, and no other has its name.
const says_number = (t: WrittenTerm) => said_name(t)?.kind === "text";
const one_of_several = "A condition of the text decides which of several calls this is: it is changed in the text.";
const unnumbered = (part: string) => part.replace(/#\d+$/, "");
const unindexed = (part: string) => part.replace(/\[\d+\]$/, "");
// The call that one part of a path stands for: what a call says as its name, or the box's own name, from the second call on with a number.
function box_call(calls: MadeCall[], part: string): WrittenTerm | string | null {
  const named = calls.filter(({ term }) => term.box && name_of(term) === part);
  if (named.length > 0) return named.length === 1 ? named[0].term : one_of_several;
  const same = calls.filter(({ term }) => term.box && term.word === unnumbered(part)),
    unnamed = same.filter(({ term }) => name_of(term) === undefined);
  if (unnamed.length < 2) return unnamed[0]?.term ?? null;
  if (same.some(({ chosen }) => chosen)) return one_of_several;
  const taken = new Set(calls.filter(({ term }) => says_number(term)).map(({ term }) => name_of(term)!));
  let number = 0;
  for (const { term } of calls) {
    const name = name_of(term),
      counted = same.some((s) => s.term === term) && !says_number(term);
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

// A box as it stands at one place of the model. Where a condition decides, the call of it is not known.
interface Instance {
  path: string;
  box: WrittenBox;
  call: WrittenTerm | null;
  around: Instance | null; // the one that calls it; of `model` there is none
}
const outermost = (d: WrittenDocument): Instance | null => {
  const box = d.boxes.find((b) => b.name === "model");
  return box ? { path: "", box, call: null, around: null } : null;
};
const below = (path: string, part: string) => (path ? `${path}.${part}` : part);
// The box that is called within another one under a part of a path; a sentence where that is not known, null where it is no box.
function step_into(d: WrittenDocument, here: Instance, part: string): Instance | string | null {
  const calls = calls_of(here.box),
    name = unindexed(part),
    call = box_call(calls, name);
  if (call === null) return null;
  const words =
    typeof call === "string"
      ? calls.filter((c) => c.term.box && (name_of(c.term) ?? c.term.word) === name).map((c) => c.term.word)
      : [call.word];
  const word = words[0] ?? unnumbered(name),
    box = words.every((w) => w === word) ? d.boxes.find((b) => b.name === word) : undefined;
  if (!box) return typeof call === "string" ? call : null;
  return { path: below(here.path, part), box, call: typeof call === "string" ? null : call, around: here };
}
// The call of a box by its path, part by part from `model` downwards, and the place that it is made in; or a sentence why it is not
// known. The program says only where calls of ops are written.
export function locate_box(d: WrittenDocument, key: string): { call: WrittenTerm; around: Instance } | string | null {
  let here = outermost(d);
  for (const part of key.replace(/\^?'*$/, "").split(".")) {
    const call = here && box_call(calls_of(here.box), unindexed(part));
    if (call === null || typeof call === "string") return call;
    const next = step_into(d, here!, part);
    if (next === null || typeof next === "string") return next;
    here = next;
  }
  return here?.call && here.around ? { call: here.call, around: here.around } : null;
}

type Given = Set<number> | null; // the objects that a term may give, or that this is not known
// What is said beside the operands.
const beside = new Set(["name", "weights", "frozen", "init"]);
export interface Slot {
  term: WrittenTerm;
  as: number | string; // its number, or the name of the argument
}
export const slots_of = (t: WrittenTerm): Slot[] => [
  ...(t.args ?? []).map((term, as) => ({ term, as })),
  ...(t.keywords ?? []).filter((k) => !beside.has(k.name)).map((k) => ({ term: k.value, as: k.name })),
];
const deepest = 400; // calls within calls, and boxes that a value goes through

class Reading {
  constructor(
    readonly document: WrittenDocument,
    readonly scheme: SchemeJson,
  ) {}
  // The place of the model in which a morphism's call is written.
  instance_of(found: Found, morphism: number): Instance | string | null {
    let here = outermost(this.document);
    for (const part of this.scheme.morphisms[morphism].source.split(":")[0].split(".")) {
      const next: Instance | string | null = here && step_into(this.document, here, part);
      if (typeof next === "string") return next;
      if (!next) break;
      here = next;
    }
    return here?.box === found.box ? here : null;
  }
  // Morphisms that a term is, at one place of the model.
  made_by(t: WrittenTerm, here: Instance): number[] {
    const inside = here.path ? `${here.path}.` : "";
    return [...this.scheme.morphisms.entries()]
      .filter(([, m]) => m.at && t.span && m.at.from === t.span.from && m.at.to === t.span.to)
      .filter(([, m]) => m.source.startsWith(inside))
      .map(([i]) => i);
  }
  // What terms give, by their places: one value goes to many.
  private known = new Map<WrittenTerm, Map<string, Given>>();
  given(t: WrittenTerm, here: Instance, depth = 0, as = ""): Given {
    const at = this.known.get(t) ?? new Map<string, Given>();
    this.known.set(t, at);
    let given = at.get(here.path);
    if (given === undefined) at.set(here.path, (given = this.find_given(t, here, depth, as)));
    return given;
  }
  private find_given(t: WrittenTerm, here: Instance, depth: number, as: string): Given {
    if (depth > deepest) return null;
    const { morphisms } = this.scheme;
    if (t.kind === "when") return this.any_of(t.args?.filter((_, i) => i !== 1) ?? [], here, depth); // the second is the condition
    if (t.kind === "name") {
      if (t.reads?.formal !== undefined) return this.given_to(t.reads.formal, here, depth + 1);
      if (t.reads?.statement !== undefined) return this.given_by(t.reads.statement, t.reads.name ?? 0, here, depth + 1);
      return t.word === "position" ? this.objects((o) => o.source === "position") : new Set();
    }
    if (t.kind !== "call" && t.kind !== "binary" && t.kind !== "negate" && t.kind !== "not") return new Set();
    if (t.box) return this.given_by_box(t, 0, 1, here, depth + 1);
    const made = this.made_by(t, here);
    if (made.length > 0) return new Set(made.flatMap((m) => morphisms[m].outputs));
    if (t.word === "param" && t.kind === "call") {
      const source = below(here.path, name_of(t) ?? as);
      return this.objects((o) => o.role === "parameter" && o.source === source);
    }
    if (t.word === "reverse" || t.word === "item") return null; // of lists
    // A call that is nothing, such as a dropout of 0, gives what it reads; one of numbers no object.
    return this.any_of(
      slots_of(t).map((s) => s.term),
      here,
      depth,
    );
  }
  private objects(which: (o: SchemeJson["objects"][number]) => boolean): Given {
    return new Set([...this.scheme.objects.entries()].filter(([, o]) => which(o)).map(([i]) => i));
  }
  private any_of(terms: WrittenTerm[], here: Instance, depth: number): Given {
    const all = terms.map((t) => this.given(t, here, depth + 1));
    return all.includes(null) ? null : new Set(all.flatMap((g) => [...g!]));
  }
  // What a statement's name stands for.
  private given_by(statement: number, name: number, here: Instance, depth: number): Given {
    const { names, values } = statements(here.box)[statement];
    if (values.length === names.length) return this.given(values[name], here, depth, names[name]);
    const value = values[0];
    if (value.kind === "call" && value.box) return this.given_by_box(value, name, names.length, here, depth);
    const all = this.given(value, here, depth);
    return all && new Set([...all].filter((o) => this.scheme.objects[o].name === names[name]));
  }
  // The places of the model at which a call's box stands, in order.
  private called(t: WrittenTerm, here: Instance): Instance[] {
    const inside = here.path ? `${here.path}.` : "",
      sources = this.scheme.morphisms.map((m) => m.source).filter((s) => s.startsWith(inside)),
      parts = new Set(sources.map((s) => s.slice(inside.length).split(/[.:]/)[0])),
      calls = calls_of(here.box);
    const paths = [...parts].filter((part) => box_call(calls, unindexed(part)) === t),
      box = this.document.boxes.find((b) => b.name === t.word);
    if (!box) return [];
    // A box of no morphism has a path, too, but nobody says it.
    return (paths.length > 0 ? paths : ["?"]).map((part) => ({
      path: below(here.path, part),
      box,
      call: t,
      around: here,
    }));
  }
  // The n-th of so many values that the call of a box gives.
  private given_by_box(t: WrittenTerm, n: number, of: number, here: Instance, depth: number): Given {
    const all = this.called(t, here),
      last = all.at(-1),
      body = last && statements(last.box),
      gives = body?.at(-1)?.names.length;
    if (!last || !body || gives === undefined) return null;
    if (t.repeat) {
      // What it gives beyond what it was given is a list; so may be what it was given.
      const args = t.args ?? [];
      if (args.length !== last.box.formals.length || n >= args.length) return null;
      if (args.slice(0, n + 1).some((a) => this.given(a, here, depth + 1) === null)) return null;
    } else if (gives !== of) return null;
    return n < gives ? this.given_by(body.length - 1, n, last, depth + 1) : null;
  }
  // What a box's head names: what the caller hands over, or what the repetition before gave.
  private given_to(formal: number, here: Instance, depth: number): Given {
    const { name } = here.box.formals[formal];
    if (!here.around) return this.objects((o) => o.role === "input" && o.source === name);
    const args = here.call?.args ?? [];
    if (!here.call || args.length !== here.box.formals.length) return null;
    for (const a of args.slice(0, formal + 1)) if (this.given(a, here.around, depth + 1) === null) return null;
    const gives = statements(here.box).at(-1)?.names.length ?? 0,
      index = Number(/\[(\d+)\]$/.exec(here.path)?.[1] ?? 0);
    if (!here.call.repeat || index === 0 || formal >= gives) return this.given(args[formal], here.around, depth + 1);
    const before = { ...here, path: here.path.replace(/\[\d+\]$/, `[${index - 1}]`) };
    return this.given_by(statements(here.box).length - 1, formal, before, depth + 1);
  }
}

const is_data = (role: string) => !["parameter", "state", "control"].includes(role);
const not_told = "The text does not tell which operand of this call the arrow is: change it in the text.";
// The operand that an arrow from an object to a call stands for.
export function operand_of(
  document: WrittenDocument,
  scheme: SchemeJson,
  found: Found,
  morphism: number,
  object: string,
): WrittenTerm | string {
  const { objects, morphisms } = scheme,
    reading = new Reading(document, scheme),
    here = reading.instance_of(found, morphism),
    wanted = morphisms[morphism].inputs.find((o) => objects[o].source === object);
  if (wanted === undefined) return "This call does not read that any more.";
  if (here === null || typeof here === "string") return here ?? not_told;
  const slots = slots_of(found.term).map(({ term }) => ({ term, given: reading.given(term, here) })),
    sure = slots.filter((s) => s.given?.has(wanted));
  if (sure.length === 1) return sure[0].term;
  if (sure.length > 1)
    return `This call reads ${objects[wanted].name ?? object} more than once: say in the text which of them is meant.`;
  // What no other operand can be, the one is that is not known; but a call also reads what no text says, as tables and weights.
  const maker = morphisms.findIndex((m) => m.outputs.includes(wanted)),
    unknown = slots.filter((s) => s.given === null),
    written =
      is_data(objects[wanted].role) &&
      (maker < 0 || (morphisms[maker].inputs.length > 0 && !reading.made_by(found.term, here).includes(maker)));
  return unknown.length === 1 && written ? unknown[0].term : not_told;
}
const none_stays = "This call reads no object that could take its place: change it in the text.";
// Operands that are objects on arrows: one of them stays where a call goes.
function objects_read(reading: Reading, term: WrittenTerm, here: Instance): Slot[] {
  const data = (g: Given) => g === null || [...g].some((o) => is_data(reading.scheme.objects[o].role));
  return slots_of(term).filter((s) => data(reading.given(s.term, here)));
}
export interface TakenOff {
  at: { from: number; to: number };
  text: string;
  operands: { as: number | string; text: string }[]; // at least one
}
// The words with which a call is taken off.
export function taken_off(
  document: WrittenDocument,
  scheme: SchemeJson,
  term: WrittenTerm,
  of: { found: Found; morphism: number } | Instance,
): TakenOff | string | null {
  const reading = new Reading(document, scheme),
    here = "found" in of ? reading.instance_of(of.found, of.morphism) : of;
  if (here === null || typeof here === "string") return here ?? not_told;
  const operands = objects_read(reading, term, here).map((s) => ({ as: s.as, text: s.term.text }));
  if (operands.length === 0) return none_stays;
  return term.span ? { at: { from: term.span.from, to: term.span.to }, text: term.text, operands } : null;
}
