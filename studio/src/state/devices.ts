// The devices whose rates the program knows. Its sheets are read when the page is built, which is of the tree that the program is of;
// a name that a program does not know is refused by it, with those that it does.
const sheets = import.meta.glob<string>("../../../devices/*.device", { query: "?raw", import: "default", eager: true });

export const own_device = "cpu"; // whose seconds a plan says unless it is told another
export const devices = Object.entries(sheets)
  .map(([path, text]) => ({
    name: path.slice(path.lastIndexOf("/") + 1).replace(/\.device$/, ""),
    summary: /^summary = "(.*)"$/m.exec(text)?.[1] ?? "",
  }))
  .sort((a, b) => Number(b.name === own_device) - Number(a.name === own_device) || a.name.localeCompare(b.name));
