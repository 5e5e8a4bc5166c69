// How texts of models, functors and optimizers are coloured, and what can be completed in them.
import { type Completion, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { HighlightStyle, StreamLanguage, syntaxHighlighting, type StreamParser } from "@codemirror/language";
import { tags } from "@lezer/highlight";
import type { FunctorInfo } from "../api/json";

const heads = new Set([
  "axes",
  "numbers",
  "preset",
  "use",
  "format",
  "field",
  "module",
  "ignore",
  "tensor",
  "set",
  "model",
  "functor",
  "law",
  "elsewhere",
  "require",
  "let",
  "object",
  "morphism",
  "state",
  "mesh",
  "order",
  "optimizer",
  "otherwise",
]);
const joins = new Set([
  "when",
  "else",
  "unless",
  "where",
  "in",
  "of",
  "and",
  "or",
  "not",
  "mod",
  "by",
  "inside",
  "outside",
  "refuse",
  "like",
  "every",
  "over",
  "along",
  "on",
  "as",
  "from",
  "null",
  "if",
  "against",
]);
const laws = new Set(["exact", "reassociating", "approximating"]);
const values = new Set([
  "kept",
  "recomputed",
  "apart",
  "bf16",
  "f16",
  "f32",
  "tf32",
  "host",
  "device",
  "frozen",
  "trained",
  "sharded",
  "replicated",
  "yes",
  "no",
  "zeros",
  "ones",
  "normal",
  "uniform",
  "constant",
  "causal",
]);
const selectors = [
  "activation",
  "gradient",
  "parameter",
  "optimizer_state",
  "input",
  "trained",
  "frozen",
  "matrix",
  "table",
  "vector",
  "state",
  "x_l in chain",
  "inside block",
  "inside chain",
  "inside attention",
  "inside feed_forward",
  "inside norm",
  "outside block",
  "of embedding",
  "of attention",
  "of attention_in",
  "of attention_out",
  "of feed_forward",
  "of router",
  "of readout",
  "of norm",
  "of linear",
  "made",
  "made here",
];

const parser: StreamParser<{ start: boolean }> = {
  startState: () => ({ start: true }),
  token(stream, state) {
    if (stream.sol()) state.start = true;
    if (stream.eatSpace()) return null;
    const first = state.start;
    state.start = false;
    if (stream.match(/^#.*/)) return "comment";
    if (stream.match(/^"[^"]*"?/)) return "string";
    if (stream.match(/^(\d+\.?\d*|\.\d+)(e[+-]?\d+)?/)) return "number";
    if (stream.match(/^(->|\^|\||[-+*/=<>!]=?)/)) return "operator";
    const word = stream.match(/^[A-Za-z_][\w]*(-[A-Za-z0-9]\w*)*/) as RegExpMatchArray | null;
    if (!word) {
      stream.next();
      return "punctuation";
    }
    const w = word[0];
    if (first && heads.has(w)) return "keyword";
    if (laws.has(w)) return "atom";
    if (joins.has(w)) return "keyword";
    if (stream.match(/^\s*\(/, false) || stream.match(/^\s*\^/, false)) return "function";
    if (stream.match(/^\s*=(?!=)/, false)) return first ? "definition" : "propertyName";
    if (values.has(w)) return "atom";
    if (first && stream.match(/^[^=]*:\s*(#.*)?$/, false)) return "definition";
    return "variableName";
  },
  tokenTable: { function: tags.function(tags.variableName), definition: tags.definition(tags.variableName) },
  languageData: { commentTokens: { line: "#" } },
};
export const language = StreamLanguage.define(parser);
export const colours = syntaxHighlighting(
  HighlightStyle.define([
    { tag: tags.comment, color: "var(--quiet)", fontStyle: "italic" },
    { tag: tags.keyword, color: "var(--purple-text)" },
    { tag: tags.atom, color: "var(--vermillion-text)" },
    { tag: tags.number, color: "var(--green-text)" },
    { tag: tags.string, color: "var(--green-text)" },
    { tag: tags.function(tags.variableName), color: "var(--blue-text)" },
    { tag: tags.definition(tags.variableName), fontWeight: "600" },
    { tag: tags.propertyName, color: "var(--orange-text)" },
    { tag: tags.operator, color: "var(--quiet)" },
  ]),
);

interface OpInfo {
  name: string;
  signature: string;
  summary: string;
  callable?: boolean;
}
export function completions(lists: () => { ops: OpInfo[]; functors: FunctorInfo[] }) {
  return (context: CompletionContext): CompletionResult | null => {
    const word = context.matchBefore(/[A-Za-z_][\w]*/);
    if (!word && !context.explicit) return null;
    const { ops, functors } = lists(),
      text = context.state.doc.toString(),
      options: Completion[] = [];
    const from = word?.from ?? context.pos,
      line = context.state.doc.lineAt(context.pos),
      before = line.text.slice(0, from - line.from);
    if (/^\s*#|"[^"]*$/.test(before)) return null;
    const of_functor = /^\s*functor\s/m.test(text);
    if (/^\s*$/.test(before))
      for (const h of of_functor
        ? ["law", "elsewhere", "require", "let", "object", "morphism", "state", "mesh"]
        : ["axes", "numbers", "preset", "use", "model", "format"])
        options.push({ label: h, type: "keyword" });
    if (of_functor && /^\s*object\b(?!.*->)/.test(before))
      for (const s of selectors) options.push({ label: s, type: "type", detail: "selector" });
    if (of_functor && /->\s*[^"]*$/.test(before))
      for (const v of values) options.push({ label: v, type: "constant", detail: "value" });
    if (of_functor && /^functor .*=|\|\s*$/.test(before))
      for (const f of functors) options.push({ label: f.name, type: "function", detail: f.law, info: f.summary });
    for (const o of ops)
      if (o.callable !== false)
        options.push({
          label: o.name,
          type: "function",
          detail: o.signature.slice(o.name.length),
          info: o.summary,
          boost: -1,
        });
    // Names in scope: what the text itself defines.
    const names = new Map<string, string>();
    for (const m of text.matchAll(/^(?:axes|numbers)\s+(.*)$/gm))
      for (const n of m[1].matchAll(/([A-Za-z_]\w*)=/g)) names.set(n[1], "setting");
    for (const m of text.matchAll(/^([A-Za-z_]\w*)\s[^=]*:\s*(?:#.*)?$/gm))
      if (!heads.has(m[1])) names.set(m[1], "box");
    for (const m of text
      .slice(Math.max(0, text.lastIndexOf("\n\n", from)), from)
      .matchAll(/^\s+([A-Za-z_]\w*(?:,\s*[A-Za-z_]\w*)*)\s*=/gm))
      for (const n of m[1].split(",")) names.set(n.trim(), "object");
    const head = [...text.slice(0, from).matchAll(/^[A-Za-z_]\w*\s+([^=\n]*):\s*(?:#.*)?$/gm)].at(-1);
    if (head) for (const n of head[1].matchAll(/([A-Za-z_]\w*)\s*(?:\w+)?(?:\[|,|$)/g)) names.set(n[1], "operand");
    for (const n of ["batch", "seq", "l"]) names.set(n, "given");
    for (const [n, detail] of names)
      options.push({ label: n, type: detail === "box" ? "class" : "variable", detail, boost: 1 });
    return { from, options, validFor: /^\w*$/ };
  };
}
