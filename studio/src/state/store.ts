// What this browser remembers. A store belongs to a port, at which another folder may be served tomorrow, so every key says the folder.
let folder = "";
const full = (key: string) => `studio:${folder}:${key}`;

export function set_folder(path: string) {
  folder = path;
}

// All tabs have one store. Each page holds a lock for as long as it lives, however it ends, so that others know what is still its own.
export const page_name = Math.random().toString(36).slice(2, 12);
const lock_of = (page: string) => full(`page:${page}`);
export function hold_page(): Promise<void> {
  return new Promise((held) => {
    const hold = () => {
      held();
      return new Promise(() => {});
    };
    navigator.locks.request(lock_of(page_name), hold).catch(() => held());
  });
}
// Whether a page of this name is open, here or in another tab.
export async function living_pages(): Promise<(page: string) => boolean> {
  const { held: all = [] } = await navigator.locks.query(),
    held = new Set(all.map((lock) => lock.name));
  return (page) => held.has(lock_of(page));
}
export function recall<T>(key: string): T | null {
  try {
    return JSON.parse(localStorage.getItem(full(key)) ?? "null");
  } catch {
    return null; // a forbidden store, or not what this page wrote
  }
}
// Whether it is remembered: a store may be full or forbidden.
export function remember(key: string, value: unknown): boolean {
  try {
    localStorage.setItem(full(key), JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
export function forget(key: string) {
  try {
    localStorage.removeItem(full(key));
  } catch {
    /* a forbidden store */
  }
}
// Keys of this folder that begin so, without the beginning.
export function recalled(beginning: string): string[] {
  try {
    const all = full(beginning);
    return Object.keys(localStorage)
      .filter((key) => key.startsWith(all))
      .map((key) => key.slice(all.length));
  } catch {
    return [];
  }
}
