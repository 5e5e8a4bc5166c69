// A stack as text, "lora(rank=8) | checkpoint(block) | -fuse", and as the functors that the page shows as chips.
export interface StackItem {
  id: number;
  name: string;
  args: string;
  off: boolean;
} // off: "-fuse", a default that is switched off
let next = 1;

export function parse_item(text: string): StackItem {
  const t = text.trim(),
    off = t.startsWith("-"),
    rest = off ? t.slice(1).trim() : t,
    bracket = rest.indexOf("(");
  return bracket < 0
    ? { id: next++, name: rest, args: "", off }
    : { id: next++, name: rest.slice(0, bracket).trim(), args: rest.slice(bracket + 1, rest.lastIndexOf(")")), off };
}
export const print_item = (item: StackItem) => `${item.off ? "-" : ""}${item.name}${item.args ? `(${item.args})` : ""}`;

// Splits at separators that stand outside of brackets and quotes.
export function split_outside(text: string, separator: string): string[] {
  const parts: string[] = [];
  let depth = 0,
    quoted = false,
    from = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === '"') quoted = !quoted;
    else if (!quoted && "([{".includes(c)) depth++;
    else if (!quoted && ")]}".includes(c)) depth--;
    else if (c === separator && depth === 0 && !quoted) {
      parts.push(text.slice(from, i));
      from = i + 1;
    }
  }
  parts.push(text.slice(from));
  return parts.map((p) => p.trim()).filter((p) => p);
}
export const parse_stack = (text: string): StackItem[] => split_outside(text, "|").map(parse_item);
export const print_stack = (items: StackItem[]) => items.map(print_item).join(" | ");
