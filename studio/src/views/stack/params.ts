// A functor's parameters between the text of a call, "block, keep=[wte]", and the fields of a form.
import type { FunctorInfo } from "../../api/json";
import { split_outside } from "../../state/stack";

export type Param = FunctorInfo["params"][number];
export type Values = Record<string, string>; // by name; a parameter that is not here has its default

// What is given by place takes the names in their order; what is given by name keeps it.
export function parse_args(args: string, params: Param[]): Values {
  const values: Values = {};
  split_outside(args, ",").forEach((piece, i) => {
    const named = /^([A-Za-z_]\w*)\s*=(?!=)\s*([\s\S]*)$/.exec(piece);
    if (named) values[named[1]] = named[2].trim();
    else values[params[i]?.name ?? `#${i}`] = piece;
  });
  return values;
}
// The first parameters are said by place as long as there is no gap and they need no name to be understood; the others by name.
export function print_args(values: Values, params: Param[]): string {
  const said: string[] = [];
  let by_place = true;
  params.forEach((p, i) => {
    const value = values[p.name]?.trim();
    if (!value || value === p.default) {
      by_place = false;
      return;
    }
    said.push(by_place && (i === 0 || p.default === null) ? value : `${p.name}=${value}`);
    if (i > 0 || p.default !== null) by_place = by_place && p.default === null;
  });
  for (const [name, value] of Object.entries(values))
    if (!params.some((p) => p.name === name) && value) said.push(name.startsWith("#") ? value : `${name}=${value}`);
  return said.join(", ");
}
// "[attention, norm]" and back; one word needs no brackets.
export const parse_list = (text: string): string[] => split_outside(text.trim().replace(/^\[([\s\S]*)\]$/, "$1"), ",");
export const print_list = (words: string[]): string =>
  words.length === 1 ? words[0] : words.length === 0 ? "" : `[${words.join(", ")}]`;

// A functor that must be told something gets a value that most models take. The ranks that others leave are known where a run is
// started; here there are none left, so that number must be said as well.
export function first_args(f: FunctorInfo): string {
  const needed = f.params.filter((p) => p.default === null || p.default === "left");
  return needed.map((p) => (p.default === null ? p.words[0] : undefined) ?? "2").join(", ");
}
export function first_call(f: FunctorInfo): string {
  const args = first_args(f);
  return args ? `${f.name}(${args})` : f.name;
}
