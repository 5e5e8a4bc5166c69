// Settings as they are typed, "layers=2 hidden=64" or with commas, and which of them the model has.
import { ask, unanswered } from "../api/client";
import { project } from "./project.svelte";
import { settings } from "./settings.svelte";

export interface Read {
  taken: Record<string, string>;
  refused: string[];
  why: string; // where something is refused
}
export async function read_settings(text: string): Promise<Read> {
  const pieces = text
    .replace(/\s*=\s*/g, "=")
    .split(/[\s,]+/)
    .filter((p) => p && p !== "--set");
  const taken: Record<string, string> = {},
    refused: string[] = [];
  const why: string[] = [];
  for (const piece of pieces) {
    const match = /^([A-Za-z_]\w*)=([^=]+)$/.exec(piece);
    if (match) taken[match[1]] = match[2];
    else {
      refused.push(piece);
      why.push(`'${piece}' is no setting: write name=value, such as layers=6.`);
    }
  }
  // Names that the model does not have are refused by the program; anything else that is wrong the page says of the model.
  while (Object.keys(taken).length > 0) {
    const args = ["show", "--model", settings.model, ...flags({ ...settings.sets, ...taken }), "--level", "chain"];
    const answer = await ask([...args, "--json"], { drafts: project.drafts(), lane: "sets" });
    if (answer.ok || unanswered(answer)) break;
    const name = /there is no (?:axis or number|setting) '(\w+)'/.exec(answer.error.message)?.[1];
    if (!name || !(name in taken)) break;
    refused.push(`${name}=${taken[name]}`);
    const said = answer.error.message.replace(/^adjoint: /, "").replace(/^\S+: (?=there is no )/, "");
    why.push(`${said}.`);
    delete taken[name];
  }
  return { taken, refused, why: why.join(" ") };
}
const flags = (sets: Record<string, string>) =>
  Object.entries(sets).flatMap(([name, value]) => ["--set", `${name}=${value}`]);
