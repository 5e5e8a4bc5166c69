// Command lines: as they are started, and as one would type them.
export function quoted(arg: string): string {
  return /^[\w@%+=:,./-]+$/.test(arg) ? arg : `'${arg.replaceAll("'", "'\\''")}'`;
}
export const command_line = (args: string[]) => ["adjoint", ...args].map(quoted).join(" ");
// A line of flags as a shell would split it: blanks outside of quotes.
export function split_flags(text: string): string[] {
  const out: string[] = [];
  let word = "",
    open = "",
    any = false;
  for (const c of text) {
    if (open) {
      if (c === open) open = "";
      else word += c;
      continue;
    }
    if (c === "'" || c === '"') {
      open = c;
      any = true;
      continue;
    }
    if (/\s/.test(c)) {
      if (word || any) out.push(word);
      word = "";
      any = false;
      continue;
    }
    word += c;
  }
  if (word || any) out.push(word);
  return out;
}
export const flag_of = (args: string[], flag: string): string | undefined => {
  const i = args.indexOf(flag);
  return i < 0 ? undefined : args[i + 1];
};
// "runs/char-2": a name that nobody has.
export function free_name(model: string, taken: string[]): string {
  const base = `runs/${
    model
      .split(":")
      .pop()!
      .replace(/\.scheme$/, "")
      .replace(/[^\w.-]+/g, "-") || "run"
  }`;
  if (!taken.includes(base)) return base;
  for (let i = 2; ; i++) if (!taken.includes(`${base}-${i}`)) return `${base}-${i}`;
}
