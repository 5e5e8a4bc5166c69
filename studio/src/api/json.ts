// The JSON vocabulary of `adjoint ... --json`, as the studio's page reads it. docs/json.md says the same in words.
// Names: *_bytes are bytes, *_s seconds, *_flops operations; a source is "path:facet" ("block[3].qkv.weight:grad"), where the path
// is what no functor changes and the facet what of that path it is ("" the thing itself).

export interface Axis {
  name: string;
  size: number;
} // {name:"batch", size:4}; name may be "" or a term such as "3*hidden"

// ---- adjoint show --json  [--model M --batch B --set ... --step --stack S --optimizer O --level chain|block|op]
export interface Shown {
  command: "show";
  model: string;
  batch: number;
  seq: number;
  params: number;
  trained_params: number;
  level: "chain" | "block" | "op";
  of: "forward" | "step"; // step: with --step or --stack
  stack?: string;
  law?: Law; // with --stack
  scheme?: SchemeJson; // level op (what the page asks for): everything, flat
  chain?: ChainPiece[]; // levels chain and block: the model as a row of pieces
  applied?: Applied[]; // with --stack: what each functor did, in the order of application
}
export type Law = "exact" | "reassociating" | "approximating";
export interface SchemeJson {
  name: string;
  objects: SchemeObject[]; // an object's id is its place in this list
  morphisms: SchemeMorphism[]; // topological order
  inputs: number[];
  outputs: number[];
  carries: [number, number][]; // [in, out]: becomes the in of the next step
  chain: { states: number[] }; // x_0 .. x_L; empty without a chain. block l is between states l and l+1
  mesh: { name: string; size: number }[];
  schedule?: string;
  parts: number;
  bodies: { [op_call: string]: string }; // SchemeMorphism.body -> the expression, for ops that have one
}
export interface SchemeObject {
  source: string; // "block[0].qkv.weight"
  role: "input" | "parameter" | "state" | "control" | "activation" | "gradient" | "metric";
  dtype: string;
  axes: Axis[];
  bytes: number;
  name?: string; // what the text calls it ("x", "logits"), where it has a name
  block?: number; // of the chain, from 0
  frozen?: true;
  residence?: "kept" | "recomputed" | "apart";
  tier?: "host";
  precision?: string; // as said; in a built step realized ones show as morphisms
  placement?: { over: string; spread: "sharded" | "partial" | "replicated"; axis?: number; home?: boolean }[];
  stage?: number; // from 1; what people read counts from 0
}
export interface SchemeMorphism {
  op: string;
  source: string; // "block[0].qkv"; boxes are the dotted prefixes of the path
  inputs: number[];
  outputs: number[];
  attrs: { [name: string]: number | string | number[] };
  phase: "forward" | "backward" | "update";
  block?: number;
  epoch?: number; // epoch > 0: a recomputed clone
  section?: "prologue" | "epilogue";
  slot?: number;
  after?: number[];
  flops: number;
  body?: string; // key into SchemeJson.bodies
  at?: Span; // of the call in the model's text (forward schemes only)
}
export interface Span {
  from: number;
  to: number;
  line: number;
  column: number;
} // byte offsets [from, to) in the text; absent where it is another file's text
export interface ChainPiece {
  // chain: embed, block^12, readout, loss ...
  name: string;
  path: string;
  repeat: number; // repeat 1: no repetition
  inputs: Wire[];
  outputs: Wire[];
  params: number;
  flops: number;
  kept_bytes: number; // of one repetition; kept_bytes: activations that the plain step keeps of it
  variants?: { blocks: number[]; calls: { source: string; op: string; text: string; output: Wire }[] }[]; // level block
}
export interface Wire {
  source: string;
  name?: string;
  dtype: string;
  axes: Axis[];
  bytes: number;
}
export interface Applied {
  name: string;
  functor: string; // "checkpoint(every=2)"
  law: Law;
  against?: string; // what the law compares with; "": the stack without it
  default: boolean;
  matches: number;
  counts: { [what: string]: number };
  did: string; // one line for people: "recomputes 48 activations of 12 blocks"
  calls_added: number; // by its own rules; negative where they joined calls
  rules: { branch: string; sources: string[] }[]; // which rule acted on what
  idle_rules?: string[];
}

// ---- adjoint show --memory-states --json
export interface MemoryStates {
  command: "show";
  model: string;
  stack: string;
  letters: { [letter: string]: { means: string; bytes: number } };
  rows?: {
    pass: "forward" | "again" | "backward";
    block: number;
    product: string;
    factors: Factor[];
    bytes: number;
    most_bytes: number;
    place: number;
  }[];
  ranks?: {
    rank: number;
    slots: {
      slot: string;
      place: number;
      parts: { product: string; factors: Factor[]; bytes: number }[];
      most_bytes: number;
    }[];
  }[];
} // of a pipeline
export interface Factor {
  letter: string;
  index?: number;
  power?: number;
  bytes: number;
}

// ---- adjoint show --text --json: the text as people wrote it, with spans
export interface ShownText {
  command: "show";
  file: string;
  text: string;
  preset: string;
  document: DocumentJson;
} // see docs: boxes, statements, terms with spans

// ---- adjoint plan --json [--model --batch --stack --fit BYTES --pareto --by block --timeline --compare STACK --threads N --device NAME]
// Today's keys stay (run it to see): model, stack, params, flops_per_step, tokens_per_step, peak_bytes, live_bytes, categories {...}, step_s, device,
// recomputed_flops, mesh, pipeline {...}, compare {...}; new: trained_params, law, applied (as above without rules), and with --timeline:
export interface Timeline {
  in_seconds: boolean;
  length: number;
  arena_bytes: number;
  peak_bytes: number;
  peak_at: number; // place
  parts: number;
  body_once: boolean; // too many parts to list
  calls: {
    // moments: the body's once per part, so a place may occur several times
    source: string;
    op: string;
    kind: "forward" | "backward" | "recomputation" | "update";
    block?: number;
    begins: number;
    ends: number;
    part: number;
    place: number;
    lane?: string;
  }[];
  live: { [category: string]: number[] }; // bytes per place, and one behind the last
  owners: {
    source: string;
    category: string;
    from: number;
    to: number;
    bytes: number;
    made_by: string;
    last_reader: string;
  }[]; // from, to: places
  sections: { name: string; first: number; last: number }[]; // first, last: moments
  phases: { name: string; first: number; last: number }[];
  blocks: { name: string; first: number; last: number }[];
  host?: Timeline;
}

// ---- adjoint functors --json -> { command: "functors", functors: FunctorInfo[] }
export interface FunctorInfo {
  name: string;
  summary: string;
  law: Law;
  against?: string; // as its text says it
  default: boolean;
  gpu_only: boolean;
  of_forward: boolean;
  params: { name: string; default: string | null; words: string[]; list: boolean; summary?: string }[];
  text?: string; // of one that is written as text
  rules?: { kind: string; text: string; span: Span; left: string; right: string; when?: string }[];
}

// ---- adjoint ops --json -> { command: "ops", ops: Op[] }: ops, words of a model's text and optimizers
export interface Op {
  name: string;
  kind?: string; // body, view, kernel; word, optimizer
  signature: string;
  summary: string;
  callable?: boolean; // false: no text calls it
  index_map?: string;
}

// ---- errors: any command that fails prints one sentence on standard error and exits 1; with --json also {"error": {message, file?, line?, column?}} is what T/api/ask answers.
// Boxes, statements and terms with their spans; what reads it says which of it (src/editor).
export type DocumentJson = any;
