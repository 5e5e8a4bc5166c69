// The rules of a functor's text: what stands left and right of each arrow. They are read off its lines, as they are typed.

export interface Rule {
  kind: string;
  text: string;
  left: string;
  right: string;
  when: string;
  where: string;
}

export function rules_of(text: string): Rule[] {
  const rules: Rule[] = [];
  const lines = text.split("\n").map((l) => l.replace(/\s+#.*$/, ""));
  for (let i = 0; i < lines.length; i++) {
    const head = /^\s{2}(object|morphism|state)\s+(.*)$/.exec(lines[i]);
    if (!head) continue;
    let all = lines[i].trim();
    while (i + 1 < lines.length && /^\s{4,}\S/.test(lines[i + 1])) all += `\n${lines[++i].trim()}`;
    // One in a text is none: contract(a, b, "or,ri->oi").
    const arrow = all.replace(/"[^"]*"/g, (text) => "_".repeat(text.length)).indexOf("->"),
      left = (arrow < 0 ? all : all.slice(0, arrow)).trim(),
      right = arrow < 0 ? "" : all.slice(arrow + 2).trim();
    rules.push(
      apart({ kind: head[1], text: all, left: left.slice(head[1].length).trim(), right, when: "", where: "" }),
    );
  }
  return rules;
}
// A condition is not part of what is drawn.
function apart(r: Rule): Rule {
  const out = { ...r };
  if (r.kind === "morphism") {
    const [head, ...statements] = out.left.split("\n"),
      where = /\swhere\s(.*?)(?=\swhen\s|$)/.exec(head),
      when = /\swhen\s(.*)$/.exec(head);
    if (where) out.where = where[1].trim();
    if (when && !out.when) out.when = when[1].trim();
    out.left = [head.replace(/\s(where|when)\s.*$/, ""), ...statements].join("\n");
  } else {
    const when = /^(.*?)\s(when|unless)\s(.*)$/s.exec(out.right);
    if (when && !out.when) {
      out.right = when[1].trim();
      out.when = `${when[2] === "unless" ? "unless " : ""}${when[3].trim()}`;
    }
  }
  return out;
}

// ---- Terms: calls, operators, names, numbers, texts, lists.
export type Term =
  | { kind: "name" | "number" | "text"; value: string }
  | { kind: "call"; value: string; args: { name: string; term: Term }[] };
export function parse_term(text: string): Term {
  const tokens = [
    ...text.matchAll(/"[^"]*"|[A-Za-z_][\w#]*|\d+\.?\d*(?:e[+-]?\d+)?|->|<=|>=|==|!=|[-+*/()[\],=<>^|]/g),
  ].map((m) => m[0]);
  let at = 0;
  const eat = (t: string) => {
    if (tokens[at] === t) {
      at++;
      return true;
    }
    return false;
  };
  const levels = [["or"], ["and"], ["==", "!=", "<", "<=", ">", ">=", "in"], ["+", "-"], ["*", "/", "mod"]];
  const binary = (level: number): Term => {
    if (level === levels.length) return unary();
    let left = binary(level + 1);
    while (levels[level].includes(tokens[at])) {
      const op = tokens[at++],
        right = binary(level + 1);
      left = {
        kind: "call",
        value: op,
        args: [
          { name: "", term: left },
          { name: "", term: right },
        ],
      };
    }
    return left;
  };
  const unary = (): Term =>
    eat("-")
      ? { kind: "call", value: "−", args: [{ name: "", term: unary() }] }
      : eat("not")
        ? { kind: "call", value: "not", args: [{ name: "", term: unary() }] }
        : primary();
  const list = (end: string) => {
    const args: { name: string; term: Term }[] = [];
    while (at < tokens.length && !eat(end)) {
      let name = "";
      if (tokens[at + 1] === "=" && /^[A-Za-z_]/.test(tokens[at])) {
        name = tokens[at];
        at += 2;
      }
      const before = at;
      args.push({ name, term: binary(0) });
      eat(",");
      if (at === before) at++;
    }
    return args;
  };
  const primary = (): Term => {
    const t = tokens[at++] ?? "";
    if (t === "(") {
      const inner = binary(0);
      eat(")");
      return inner;
    }
    if (t === "[") return { kind: "call", value: "[]", args: list("]") };
    if (t.startsWith('"')) return { kind: "text", value: t };
    if (/^[\d.]/.test(t)) return { kind: "number", value: t };
    if (eat("(")) return { kind: "call", value: t, args: list(")") };
    return { kind: "name", value: t };
  };
  return binary(0);
}
// Whether a term is of numbers alone is not known here; what has no operand that the rule names is written as text.
export function print_term(t: Term): string {
  if (t.kind !== "call") return t.value;
  if (/^\w/.test(t.value) && t.value !== "mod" && t.value !== "in" && t.value !== "and" && t.value !== "or")
    return `${t.value}(${t.args.map((a) => (a.name ? `${a.name}=` : "") + print_term(a.term)).join(", ")})`;
  if (t.value === "[]") return `[${t.args.map((a) => print_term(a.term)).join(", ")}]`;
  return t.args.length === 1
    ? `${t.value}${print_term(t.args[0].term)}`
    : t.args.map((a) => print_term(a.term)).join(` ${t.value} `);
}
