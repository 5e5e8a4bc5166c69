// The present drawing as a file: all of it, not only what is in the window, with the page's colours written out.
import { project } from "../state/project.svelte";
import { settings } from "../state/settings.svelte";
import { view } from "../state/view.svelte";

// Whoever shows a drawing says how it is drawn whole; the last one that was mounted is the present one.
interface Source {
  svg: () => SVGSVGElement | undefined;
  size: () => { w: number; h: number };
  whole: (on: boolean) => Promise<void>;
}
const sources: Source[] = [];
export function offer_export(source: Source): () => void {
  sources.push(source);
  return () => {
    sources.splice(sources.indexOf(source), 1);
  };
}

const kept = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-linecap",
  "stroke-linejoin",
  "opacity",
  "font-family",
  "font-size",
  "font-style",
  "font-weight",
  "text-anchor",
  "paint-order",
  "white-space",
];
// A copy that looks so without the page's style sheet, and has nothing to click on.
function frozen(node: Element, copy: Element) {
  const style = getComputedStyle(node);
  for (const name of kept) {
    const value = style.getPropertyValue(name);
    if (value) (copy as SVGElement).style.setProperty(name, value);
  }
  for (const name of ["class", "tabindex", "role", "data-key", "data-line", "data-item", "aria-expanded"])
    copy.removeAttribute(name);
  for (const { name, value } of [...copy.attributes])
    if (name !== "style" && value.includes("var(")) copy.removeAttribute(name);
  for (let i = node.children.length - 1; i >= 0; i--)
    if (node.children[i].matches(".tool")) copy.children[i].remove();
    else frozen(node.children[i], copy.children[i]);
}
export async function svg_text(): Promise<{ text: string; w: number; h: number } | null> {
  const source = sources.at(-1),
    svg = source?.svg();
  if (!source || !svg) return null;
  await source.whole(true);
  try {
    const { w, h } = source.size(),
      copy = svg.cloneNode(true) as SVGSVGElement;
    frozen(svg, copy);
    const group = [...copy.children].find((c) => c.tagName === "g");
    group?.setAttribute("transform", "");
    copy.removeAttribute("style");
    copy.setAttribute("viewBox", `0 0 ${Math.ceil(w)} ${Math.ceil(h)}`);
    copy.setAttribute("width", String(Math.ceil(w)));
    copy.setAttribute("height", String(Math.ceil(h)));
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    const paper = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    paper.setAttribute("width", "100%");
    paper.setAttribute("height", "100%");
    paper.setAttribute("fill", getComputedStyle(document.documentElement).getPropertyValue("--paper").trim());
    copy.insertBefore(paper, copy.firstChild);
    return { text: new XMLSerializer().serializeToString(copy), w, h };
  } finally {
    await source.whole(false);
  }
}
function give(blob: Blob, name: string) {
  const a = document.createElement("a");
  a.href = URL.createObjectURL(blob);
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 10_000);
}
const file_name = (end: string) =>
  `${settings.model.replace(/[^\w.-]+/g, "_").replace(/\.scheme.*$/, "")}-${view.tab}.${end}`;
export async function export_svg() {
  const made = await svg_text();
  if (made) give(new Blob([made.text], { type: "image/svg+xml" }), file_name("svg"));
  else project.say("This view is no drawing.", "bad");
}
export async function export_png() {
  const made = await svg_text();
  if (!made) {
    project.say("This view is no drawing.", "bad");
    return;
  }
  const blob = await painted(made).catch(() => null);
  if (blob) give(blob, file_name("png"));
  else project.say("This drawing is too large for the browser to paint: save it as SVG.", "bad");
}
// The picture as dots. A browser refuses images and canvases above sizes of its own, by an error or by giving nothing.
async function painted({ text, w, h }: { text: string; w: number; h: number }): Promise<Blob | null> {
  const image = new Image(),
    canvas = document.createElement("canvas"),
    scale = Math.min(2, 8000 / Math.max(w, h));
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  canvas.width = Math.ceil(w * scale);
  canvas.height = Math.ceil(h * scale);
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
