// What this browser remembers. A store belongs to a port, at which another folder may be served tomorrow, so every key says the folder.
let folder = "";
const full = (key: string) => `studio:${folder}:${key}`;

export function set_folder(path: string) {
  folder = path;
}
export function recall<T>(key: string): T | null {
  try {
    return JSON.parse(localStorage.getItem(full(key)) ?? "null");
  } catch {
    return null; // a forbidden store, or not what this page wrote
  }
}
export function remember(key: string, value: unknown) {
  try {
    localStorage.setItem(full(key), JSON.stringify(value));
  } catch {
    /* a full or forbidden store */
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
