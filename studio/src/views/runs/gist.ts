// What one wants to know of a job's output: all of a text that was written, the verdict of a check, a profile's bytes and seconds.
export function gist(command: string, lines: string[], running: boolean): string {
  const text = lines.join("\n").trim();
  if (command === "generate") return text;
  if (running) return "";
  const parts = text.split(/\n\s*\n/);
  return command === "profile" ? parts.filter((_, i) => i === 1 || i === parts.length - 1).join("\n\n") : parts.at(-1)!;
}
