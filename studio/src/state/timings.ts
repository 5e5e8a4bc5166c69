// How long a change takes until it is seen: from the event to the frame that shows it. Tests read window.__studio.timings.
export interface Timing {
  what: string;
  ms: number;
  parts?: Record<string, number>;
}
export const timings: Timing[] = [];
const begun = new Map<string, number>();

export function begin(what: string) {
  begun.set(what, performance.now());
}
let composing = 0; // drawings that are being arranged
export const is_drawn = () => composing === 0;
export const ended = { edits: 0 }; // edits of the drawing that were made or refused
export async function while_composing<T>(work: Promise<T>): Promise<T> {
  composing++;
  try {
    return await work;
  } finally {
    composing--;
  }
}
// Called when the answers are there: what is drawn of them is painted in the frame after the drawing is arranged.
export function painted(what: string, parts?: Record<string, number>) {
  const t0 = begun.get(what);
  if (t0 === undefined) return;
  begun.delete(what);
  const look = () =>
    requestAnimationFrame(() => {
      if (composing > 0) {
        look();
        return;
      }
      setTimeout(() => {
        timings.push({ what, ms: performance.now() - t0, parts });
        if (timings.length > 500) timings.shift();
      });
    });
  look();
}
