// The folder's files and the texts that are open. A text is edited in the editor alone; everybody else gives it a transaction.
import * as api from "../api/client";
import { forget, recall, recalled, remember } from "./store";

export interface OpenText {
  path: string; // in the folder; of a text of the library its preset, "gpt2"
  kind: "scheme" | "functor" | "optimizer" | "other";
  text: string; // as typed; lines end with \n here, whatever they end with on disk
  saved: string; // as on disk
  etag: string | null; // null: not on disk yet
  library: boolean; // a text that travels with the program: read, and saved under another name to be changed
  crlf?: boolean; // its lines end with \r\n wherever it leaves the page
  removed?: string; // what it was when its file was removed
}
export interface Message {
  text: string;
  kind: "good" | "bad";
  conflict?: string;
} // conflict: the path that somebody else has changed
interface Draft {
  text: string;
  etag: string | null;
  crlf: boolean;
}

export const kind_of = (path: string): OpenText["kind"] =>
  path.endsWith(".scheme")
    ? "scheme"
    : path.endsWith(".functor")
      ? "functor"
      : path.endsWith(".optimizer")
        ? "optimizer"
        : "other";
// What commands read beside the text that is drawn.
export const is_source = (path: string) => /\.(scheme|functor|optimizer|schedule)$/.test(path);

// A text all of whose lines end with \r\n is edited with \n; one with mixed ends is edited as it is.
export function without_returns(text: string): { text: string; crlf: boolean } {
  const crlf = text.includes("\r\n") && !/[^\r]\n|^\n|\r(?!\n)/.test(text);
  return { text: crlf ? text.replaceAll("\r\n", "\n") : text, crlf };
}
export const with_returns = (text: string, crlf: boolean | undefined) => (crlf ? text.replaceAll("\n", "\r\n") : text);
const is_status = (e: unknown, status: number) => e instanceof api.ServerError && e.status === status;

class Project {
  folder = $state("");
  version = $state("");
  lost = $state(false); // the server does not answer
  files = $state<api.FileEntry[]>([]);
  open = $state<OpenText[]>([]);
  active = $state(""); // the path of the text in the editor
  message = $state<Message | null>(null);
  edition = $state(0); // raised whenever a file that commands read has another content: part of every question's key
  text = $derived(this.open.find((t) => t.path === this.active));
  dirty = $derived(this.open.filter((t) => !t.library && t.text !== t.saved));
  private saving = new Map<string, Promise<boolean>>();
  private opening = 0;

  // Unsaved texts by path: every command works on what is typed.
  drafts(): Record<string, string> {
    return Object.fromEntries(this.dirty.map((t) => [t.path, with_returns(t.text, t.crlf)]));
  }
  find(path: string): OpenText | undefined {
    return this.open.find((t) => t.path === path);
  }
  say(text: string, kind: "good" | "bad" = "good", conflict?: string) {
    this.message = { text, kind, conflict };
    if (kind === "good") {
      const mine = this.message;
      setTimeout(() => {
        if (this.message === mine) this.message = null;
      }, 4000);
    }
  }
  async refresh_files() {
    try {
      this.files = await api.list_files();
    } catch (e) {
      this.say(String((e as Error).message), "bad");
    }
  }
  // Of several that are opened one after the other the last is shown, whichever is read last.
  async open_file(path: string): Promise<OpenText | undefined> {
    const mine = ++this.opening,
      known = this.open.find((t) => t.path === path && !t.library);
    if (known) {
      this.active = path;
      return known;
    }
    try {
      const read = await api.read_file(path);
      const { text, crlf } = without_returns(read.text);
      if (!this.open.some((t) => t.path === path && !t.library)) {
        this.put(
          { path, kind: kind_of(path), text, saved: text, etag: read.etag, library: false, crlf },
          mine === this.opening,
        );
      }
      if (mine === this.opening) this.active = path;
      return this.find(path);
    } catch (e) {
      this.say((e as Error).message, "bad");
      return undefined;
    }
  }
  put(text: OpenText, show = true) {
    if (show) this.opening++;
    // Of the library one text of a kind is open at a time: looking through presets leaves nothing behind.
    if (text.library) this.open = this.open.filter((t) => !t.library || t.kind !== text.kind || t.path === text.path);
    const i = this.open.findIndex((t) => t.path === text.path);
    if (i < 0) this.open.push(text);
    else this.open[i] = text;
    if (show) this.active = text.path;
  }
  // One save of a text at a time: a second one waits, and finds nothing left to do unless more was typed.
  async save(path = this.active): Promise<boolean> {
    const t = this.find(path);
    if (!t || t.library) return false;
    let waited = false;
    for (let now = this.saving.get(path); now; now = this.saving.get(path)) {
      waited = true;
      if (!(await now)) return false;
    }
    if (waited && t.text === t.saved) return true;
    const saving = this.write(t);
    this.saving.set(path, saving);
    try {
      return await saving;
    } finally {
      this.saving.delete(path);
    }
  }
  private async write(t: OpenText): Promise<boolean> {
    const text = t.text;
    try {
      t.etag = (await api.write_file(t.path, with_returns(text, t.crlf), t.etag)).etag;
      t.saved = text;
      t.removed = undefined;
      this.edition++;
      this.say(`Saved ${t.path}`);
      void this.refresh_files();
      return true;
    } catch (e) {
      if (is_status(e, 409)) this.say(`${t.path} was changed by somebody else since it was opened.`, "bad", t.path);
      else this.say((e as Error).message, "bad");
      return false;
    }
  }
  // Everything that is not saved, for commands that read files alone.
  async save_all(): Promise<boolean> {
    for (const t of this.dirty) if (!(await this.save(t.path))) return false;
    return true;
  }
  async save_as(path: string, text: string, crlf = false): Promise<boolean> {
    try {
      const { etag } = await api.write_file(path, with_returns(text, crlf), null);
      this.put({ path, kind: kind_of(path), text, saved: text, etag, library: false, crlf });
      this.edition++;
      this.say(`Saved ${path}`);
      void this.refresh_files();
      return true;
    } catch (e) {
      this.say(
        is_status(e, 409) ? `there is a file ${path} already: choose another name` : (e as Error).message,
        "bad",
      );
      return false;
    }
  }
  private take(t: OpenText, read: { text: string; etag: string }) {
    const { text, crlf } = without_returns(read.text);
    t.text = text;
    t.saved = text;
    t.crlf = crlf;
    t.etag = read.etag;
    t.removed = undefined;
  }
  // The text as it is on disk; what was typed is given up.
  async reload(path: string) {
    const t = this.find(path);
    if (!t || t.library) return;
    try {
      this.take(t, await api.read_file(path));
      this.edition++;
      this.message = null;
    } catch (e) {
      this.say((e as Error).message, "bad");
    }
  }
  close(path: string) {
    this.open = this.open.filter((t) => t.path !== path);
    if (this.active === path) this.active = this.open.at(-1)?.path ?? "";
    forget(`draft:${path}`);
  }
  async rename(from: string, to: string): Promise<boolean> {
    try {
      await api.rename_file(from, to);
    } catch (e) {
      this.say((e as Error).message, "bad");
      return false;
    }
    this.close(from);
    this.edition++;
    await this.refresh_files();
    return true;
  }
  // Only as it was when it was opened, or is now: what somebody else has written meanwhile is not deleted.
  async remove(path: string): Promise<boolean> {
    try {
      const etag = this.open.find((t) => t.path === path && !t.library)?.etag ?? (await api.read_file(path)).etag;
      await api.delete_file(path, etag);
    } catch (e) {
      if (is_status(e, 409)) this.say(`${path} was changed by somebody else since it was opened.`, "bad", path);
      else this.say((e as Error).message, "bad");
      return false;
    }
    this.close(path);
    this.edition++;
    await this.refresh_files();
    return true;
  }
  // What was changed on disk by others is read again where nobody typed.
  async changed_on_disk(changed: string[], removed: string[] = []) {
    const files = this.refresh_files();
    let other =
      removed.some(is_source) ||
      changed.some((path) => is_source(path) && !this.open.some((t) => t.path === path && !t.library));
    for (const t of this.open) {
      if (t.library) continue;
      if (removed.includes(t.path)) this.was_removed(t);
      if (!changed.includes(t.path)) continue;
      try {
        const read = await api.read_file(t.path),
          { text } = without_returns(read.text);
        if (read.etag === t.etag || this.saving.has(t.path)) continue; // written by this page
        other = true;
        if (t.text === t.saved || t.text === text || t.text === t.removed) this.take(t, read);
      } catch {
        /* it is gone again; the text stays */
      }
    }
    await files;
    if (changed.some((path) => this.files.some((f) => f.path === path && f.kind === "model" && !is_source(path))))
      other = true;
    if (other) this.edition++;
  }
  // The text stays, and saved it is a new file.
  private was_removed(t: OpenText) {
    if (t.etag === null) return;
    t.etag = null;
    t.removed = t.text;
    t.saved = "";
    this.say(`${t.path} was removed from the folder; its text is still here.`, "bad");
  }
  // After a while without the server's events: whatever happened meanwhile.
  async look_again() {
    const before = new Map(this.files.map((f) => [f.path, `${f.modified} ${f.bytes}`]));
    await this.refresh_files();
    const now = new Set(this.files.map((f) => f.path));
    const changed = this.files.filter((f) => before.get(f.path) !== `${f.modified} ${f.bytes}`).map((f) => f.path);
    const removed = [...before.keys()].filter((path) => !now.has(path));
    if (changed.length > 0 || removed.length > 0) await this.changed_on_disk(changed, removed);
  }

  // What is typed and not saved is kept in this browser, so that it outlives the page and the server.
  private kept = new Set<string>();
  keep_drafts() {
    const dirty = new Set(this.dirty.map((t) => t.path));
    for (const t of this.dirty)
      remember(`draft:${t.path}`, { text: t.text, etag: t.etag, crlf: t.crlf === true } satisfies Draft);
    for (const path of this.kept) if (!dirty.has(path)) forget(`draft:${path}`);
    this.kept = dirty;
  }
  async restore_drafts() {
    const restored: string[] = [];
    for (const path of recalled("draft:")) {
      const draft = recall<Draft>(`draft:${path}`);
      if (!draft || typeof draft.text !== "string") continue;
      let saved = "",
        etag: string | null = null;
      try {
        const read = await api.read_file(path);
        saved = without_returns(read.text).text;
        etag = draft.etag; // that of the file from which it was typed: a save says if there is another
      } catch (e) {
        if (!is_status(e, 404)) continue;
      }
      this.kept.add(path);
      if (saved === draft.text) continue;
      this.put({ path, kind: kind_of(path), text: draft.text, saved, etag, library: false, crlf: draft.crlf }, false);
      restored.push(path);
    }
    if (restored.length > 0) this.say(`What was typed and not saved in ${restored.join(", ")} is here again.`);
    this.keep_drafts();
  }
}
export const project = new Project();
