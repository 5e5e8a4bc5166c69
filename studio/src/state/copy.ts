// Puts a text into the clipboard, and says so.
import { project } from "./project.svelte";

export async function copy(text: string) {
  try {
    await navigator.clipboard.writeText(text);
    project.say("Copied");
  } catch {
    project.say("The browser forbids copying: mark the line and copy it by hand", "bad");
  }
}
