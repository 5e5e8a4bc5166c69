// Jobs (commands that run for long) and runs (their folders), and the one stream of the server's events that a page has: a browser
// opens few connections to one address, all its tabs together, so that the stream is closed while the page is hidden.
import * as api from "../api/client";
import { project } from "./project.svelte";

// Somebody who listens to what a job says.
interface Ear {
  id: string;
  next: number;
  heard: (e: api.JobEvent) => void;
  reading: boolean;
  waiting: api.JobEvent[];
}

class Jobs {
  jobs = $state<api.Job[]>([]);
  runs = $state<api.Run[]>([]);
  known = false; // whether the lists are the server's
  private ears = new Set<Ear>();

  // Of several that are asked at once the one that was asked last counts, whichever is answered last, and whoever asked before waits
  // for it. Runs are listed after the jobs: a job that has ended has its run among them, if it became one.
  private listing: Promise<void> | undefined;
  refresh(): Promise<void> {
    const mine: Promise<void> = this.list().then(
      ([jobs, runs]) => {
        if (this.listing !== mine) return this.listing;
        [this.jobs, this.runs] = [jobs, runs];
        this.known = true;
      },
      // Said by the banner of a lost server.
      () => (this.listing === mine ? undefined : this.listing),
    );
    this.listing = mine;
    return mine;
  }
  private async list(): Promise<[api.Job[], api.Run[]]> {
    const jobs = await api.list_jobs();
    return [jobs, await api.list_runs()];
  }
  // Everything that a job says from event N on; what it said before is read, and again after the stream was closed.
  listen(id: string, from: number, heard: (e: api.JobEvent) => void): () => void {
    const ear: Ear = { id, next: from, heard, reading: false, waiting: [] };
    this.ears.add(ear);
    void this.catch_up(ear);
    return () => void this.ears.delete(ear);
  }
  private tell(ear: Ear, e: api.JobEvent) {
    if (e.n < ear.next || !this.ears.has(ear)) return;
    ear.next = e.n + 1;
    ear.heard(e);
  }
  private async catch_up(ear: Ear) {
    if (ear.reading) return;
    ear.reading = true;
    try {
      for (const e of await api.job_events(ear.id, ear.next)) this.tell(ear, e);
    } catch {
      /* it is read when the server is back */
    }
    ear.reading = false;
    for (const e of ear.waiting.splice(0)) this.tell(ear, e);
  }
  private said(id: string, e: api.JobEvent) {
    for (const ear of this.ears) {
      if (ear.id !== id) continue;
      if (ear.reading) ear.waiting.push(e);
      else this.tell(ear, e);
    }
  }
  // Follows the server: changed files, jobs that begin, speak and end, and whether it is there at all. `back` is called when the page
  // could not hear for a while, and can again.
  follow(back: () => void): () => void {
    let leave: (() => void) | null = null,
      first = true;
    const open = () => {
      leave ??= api.listen("api/events?jobs=1", {
        event: (e) => {
          if (e.kind === "files") void project.changed_on_disk(e.changed ?? [], e.removed ?? []);
          if (e.kind === "job") void this.refresh();
          if (e.kind === "said") this.said(e.id, e.event);
        },
        opened: () => {
          for (const ear of this.ears) void this.catch_up(ear);
          if (!first) {
            void this.refresh();
            back();
          }
          first = false;
        },
        // A single answer may be lost while this stream goes on: it is asked again at the next beat.
        lost: (lost) => {
          const was = project.lost;
          project.lost = lost;
          if (was && !lost) back();
        },
      });
    };
    const seen = () => {
      if (!document.hidden) {
        open();
        return;
      }
      leave?.();
      leave = null;
    };
    document.addEventListener("visibilitychange", seen);
    seen();
    return () => {
      document.removeEventListener("visibilitychange", seen);
      leave?.();
    };
  }
}
export const jobs = new Jobs();
