// How wide texts are, without asking the page to lay itself out.
const canvas = typeof document === "undefined" ? null : document.createElement("canvas").getContext("2d");
const known = new Map<string, number>();
let families: { serif: string; sans: string; mono: string } | null = null;

export type Face = "name" | "type" | "label" | "sub" | "title" | "mono";
export const sizes: Record<Face, number> = { name: 14, type: 10.5, label: 13, sub: 10.5, title: 13, mono: 11.5 };
export function font_of(face: Face): string {
  if (!families) {
    const style = getComputedStyle(document.documentElement);
    families = {
      serif: style.getPropertyValue("--serif"),
      sans: style.getPropertyValue("--sans"),
      mono: style.getPropertyValue("--mono"),
    };
  }
  const slant = face === "name" || face === "label" || face === "title" ? "italic " : "";
  return `${slant}${sizes[face]}px ${face === "type" || face === "sub" ? families.sans : face === "mono" ? families.mono : families.serif}`;
}
export function width(text: string, face: Face): number {
  const key = face + text;
  let w = known.get(key);
  if (w === undefined) {
    if (canvas) {
      canvas.font = font_of(face);
      w = canvas.measureText(text).width;
    } else w = text.length * sizes[face] * 0.55;
    known.set(key, w);
  }
  return w;
}
