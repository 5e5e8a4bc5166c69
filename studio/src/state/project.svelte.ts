// The folder's files and the texts that are open. A text is edited in the editor alone; everybody else gives it a transaction.
import * as api from "../api/client";
import { forget, hold_page, living_pages, page_name, recall, recalled, remember } from "./store";

export interface OpenText {
  path: string; // in the folder; of a text of the library its preset, "gpt2"
  kind: "scheme" | "functor" | "optimizer" | "other";
  text: string; // as typed; lines end with \n here, whatever they end with on disk
  saved: string; // as on disk
  etag: string | null; // null: not on disk yet
  library: boolean; // a text that travels with the program: read, and saved under another name to be changed
  preset?: string; // that a copy of a text of the library is opened with, if it is not called like the text
  crlf?: boolean; // its lines end with \r\n wherever it leaves the page
  removed?: string; // what it was when its file was removed
}
export interface Message {
  text: string;
  kind: "good" | "bad";
  conflict?: string;
  refusal?: true;
  choices?: string[];
} // conflict: the path that somebody else has changed; refusal: of an edit, until the text is changed; choices: it is a question
interface Draft {
  text: string;
  etag: string | null;
  crlf: boolean;
  when: number;
}
// Drafts are of the page in which they are typed: two tabs may have the same text open.
const draft_key = (path: string) => `draft:${page_name}/${path}`;

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
  private said = $state.raw<Message | null>(null);
  private answered: ((choice: string | null) => void) | undefined;
  unkept = $state(false); // this browser did not keep what is typed
  edition = $state(0); // raised whenever a file that commands read has another content: part of every question's key
  text = $derived(this.open.find((t) => t.path === this.active));
  dirty = $derived(this.open.filter((t) => !t.library && t.text !== t.saved));
  private saving = new Map<string, Promise<boolean>>();
  private opening = 0;

  get message() {
    return this.said;
  }
  // A question that something else is said over has no answer.
  set message(message: Message | null) {
    if (message === this.said) return;
    this.answered?.(null);
    this.answered = undefined;
    this.said = message;
  }
  // Asks before an edit is made, until somebody answers, closes the question or changes the text.
  choose(text: string, choices: string[]): Promise<string | null> {
    this.message = { text, kind: "bad", refusal: true, choices };
    return new Promise((done) => (this.answered = done));
  }
  answer(choice: string) {
    const { answered } = this;
    this.answered = undefined;
    this.message = null;
    answered?.(choice);
  }

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
  // Why an edit was not made; the next one that is made, or taken back, takes the sentence away.
  refuse(text: string) {
    this.message = { text, kind: "bad", refusal: true };
  }
  forget_refusal() {
    if (this.message?.refusal) this.message = null;
  }
  // Lists may overtake each other: the one that was asked for last is the present one, and whoever asked before waits for it.
  private listing: Promise<void> | undefined;
  refresh_files(): Promise<void> {
    const mine: Promise<void> = api.list_files().then(
      (files) => {
        if (this.listing !== mine) return this.listing;
        this.files = files;
      },
      (e) => {
        if (this.listing !== mine) return this.listing;
        this.say((e as Error).message, "bad");
      },
    );
    this.listing = mine;
    return mine;
  }
  // A text as it is on disk. What was read while it became another one, or was being written, is read again.
  private changes = new Map<string, number>();
  private changed(path: string) {
    this.changes.set(path, (this.changes.get(path) ?? 0) + 1);
  }
  private async read(path: string): Promise<{ text: string; etag: string }> {
    for (;;) {
      while (this.saving.has(path)) await this.saving.get(path);
      const before = this.changes.get(path),
        read = await api.read_file(path);
      if (this.changes.get(path) === before && !this.saving.has(path)) return read;
    }
  }
  // Of several that are opened one after the other the last is shown, whichever is read last.
  async open_file(path: string, show = true): Promise<OpenText | undefined> {
    const mine = show ? ++this.opening : -1,
      known = this.open.find((t) => t.path === path && !t.library);
    if (known) {
      if (show) this.active = path;
      return known;
    }
    try {
      const read = await this.read(path);
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
    const waits = this.saving.has(t.path);
    while (this.saving.has(t.path)) await this.saving.get(t.path);
    return waits && t.text === t.saved ? true : this.while_saving(t.path, this.write(t));
  }
  // What else is to be done with a file waits for this, which says whether it was done.
  private async while_saving(path: string, work: Promise<boolean>): Promise<boolean> {
    this.saving.set(path, work);
    try {
      return await work;
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
      this.changed(t.path);
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
  // A text becomes a new file: of the library a copy of it does, of the folder it does itself, with all that is typed meanwhile, and
  // the old file is again as it is on disk.
  async save_as(path: string, t: OpenText): Promise<boolean> {
    if (this.is_open(path)) return false;
    while (this.saving.has(t.path)) await this.saving.get(t.path);
    return this.while_saving(t.path, this.write_as(path, t));
  }
  private async write_as(path: string, t: OpenText): Promise<boolean> {
    const { text, crlf, library, path: from, etag: old } = t;
    try {
      const { etag } = await api.write_file(path, with_returns(text, crlf), null);
      if (library) this.put({ path, kind: kind_of(path), text, saved: text, etag, library: false, crlf });
      else {
        this.move(t, path);
        Object.assign(t, { saved: text, etag, removed: undefined });
        if (old !== null) void this.open_file(from, false);
      }
      this.changed(path);
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
  // Whether another text is open by a name that is wanted, which is said. Its file may be gone, so that the folder has none.
  private is_open(path: string): boolean {
    const open = this.open.some((t) => t.path === path);
    if (open) this.say(`a text ${path} is open already: choose another name`, "bad");
    return open;
  }
  // An open text has another name from now on; `moved` tells the editor, whose undo goes with it.
  moved: ((from: string, to: string) => void) | null = null;
  private move(t: OpenText, to: string) {
    const from = t.path;
    t.path = to;
    t.kind = kind_of(to);
    if (this.active === from) this.active = to;
    forget(draft_key(from));
    this.moved?.(from, to);
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
      this.take(t, await this.read(path));
      this.edition++;
      this.message = null;
    } catch (e) {
      this.say((e as Error).message, "bad");
    }
  }
  close(path: string) {
    this.open = this.open.filter((t) => t.path !== path);
    if (this.active === path) this.active = this.open.at(-1)?.path ?? "";
    forget(draft_key(path));
  }
  async rename(from: string, to: string): Promise<boolean> {
    if (this.is_open(to)) return false;
    while (this.saving.has(from)) await this.saving.get(from);
    return this.while_saving(from, this.rename_now(from, to));
  }
  private async rename_now(from: string, to: string): Promise<boolean> {
    try {
      await api.rename_file(from, to);
    } catch (e) {
      this.say((e as Error).message, "bad");
      return false;
    }
    const open = this.open.find((t) => t.path === from && !t.library);
    if (open) this.move(open, to);
    this.changed(from);
    this.changed(to);
    this.edition++;
    void this.refresh_files();
    return true;
  }
  // Only as it was when it was opened, or is now: what somebody else has written meanwhile is not deleted.
  async remove(path: string): Promise<boolean> {
    try {
      const etag = this.open.find((t) => t.path === path && !t.library)?.etag ?? (await this.read(path)).etag;
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
    for (const path of [...changed, ...removed]) this.changed(path);
    let other =
      removed.some(is_source) ||
      changed.some((path) => is_source(path) && !this.open.some((t) => t.path === path && !t.library));
    for (const t of this.open) {
      if (t.library) continue;
      const { path, etag } = t;
      if (removed.includes(path)) {
        while (this.saving.has(path)) await this.saving.get(path);
        if (t.path === path && t.etag === etag) this.was_removed(t); // and neither renamed nor saved by this page
      }
      if (!changed.includes(path)) continue;
      try {
        const read = await this.read(path),
          { text } = without_returns(read.text);
        if (read.etag === t.etag || t.path !== path) continue; // written by this page, or renamed meanwhile
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
    const dirty = new Set(this.dirty.map((t) => t.path)),
      when = Date.now();
    let all = true;
    for (const t of this.dirty) {
      const draft: Draft = { text: t.text, etag: t.etag, crlf: t.crlf === true, when };
      if (!remember(draft_key(t.path), draft)) all = false;
    }
    for (const path of this.kept) if (!dirty.has(path)) forget(draft_key(path));
    this.kept = dirty;
    if (!all && !this.unkept)
      this.say("This browser's store is full: what is typed is not kept there. Save it.", "bad");
    this.unkept = !all;
  }
  // Drafts of pages that are gone are taken over; what another tab has is left to it. Where several pages left a text of one path, the
  // last one has the path, and each other one a name of its own.
  async restore_drafts() {
    await hold_page();
    const lives = await living_pages(),
      left: { key: string; path: string; draft: Draft }[] = [],
      restored: string[] = [];
    for (const rest of recalled("draft:")) {
      const slash = rest.indexOf("/"),
        draft = recall<Draft>(`draft:${rest}`);
      if (slash < 0 || lives(rest.slice(0, slash)) || typeof draft?.text !== "string") continue;
      left.push({ key: `draft:${rest}`, path: rest.slice(slash + 1), draft });
    }
    left.sort((a, b) => b.draft.when - a.draft.when);
    for (const { key, path, draft } of left) {
      try {
        const text = await this.restore(path, draft);
        if (text) restored.push(text.path);
      } catch {
        continue; // it cannot be compared with its file now, and is left for the next time
      }
      forget(key);
      this.keep_drafts();
    }
    if (restored.length > 0) this.say(`What was typed and not saved in ${restored.join(", ")} is here again.`);
  }
  // The text of a draft, unless it is that of the file, or of another draft, by now.
  private async restore(path: string, { text, etag, crlf }: Draft): Promise<OpenText | undefined> {
    const read = await this.read(path).catch((e) => {
        if (is_status(e, 404)) return null;
        throw e;
      }),
      saved = read ? without_returns(read.text).text : "",
      open = this.find(path);
    if (text === saved || text === open?.text) return undefined;
    if (open) await this.listing;
    // Its etag is that of the file from which it was typed: a save says if there is another.
    const own = open
      ? { path: this.free_path(path), saved: "", etag: null }
      : { path, saved, etag: read ? etag : null };
    this.put({ ...own, kind: kind_of(path), text, library: false, crlf }, false);
    return this.find(own.path);
  }
  private free_path(path: string): string {
    const taken = new Set([...this.files, ...this.open].map((f) => f.path)),
      [, base, end] = /^(.*?)(\.\w+)?$/.exec(path)!;
    for (let i = 2; ; i++) if (!taken.has(`${base}_${i}${end ?? ""}`)) return `${base}_${i}${end ?? ""}`;
  }
}
export const project = new Project();
