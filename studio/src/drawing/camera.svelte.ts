// Where one looks at a drawing: a shift and a scale. What was looked at is kept in place when a drawing changes.
import type { Drawing } from "./drawing";

interface Box {
  x: number;
  y: number;
  w: number;
  h: number;
}
export class Camera {
  x = $state(0);
  y = $state(0);
  k = $state(1);
  w = $state(800);
  h = $state(500); // of the window onto the drawing
  foot = 46; // below a drawing that is fitted: the buttons
  touched = false; // a reader who has moved is not moved again
  fit(d: { w: number; h: number }, most = 1.25, least = 0.02) {
    if (d.w === 0 || this.w === 0) return;
    const h = Math.max(1, this.h - this.foot);
    this.k = Math.max(least, Math.min(most, this.w / d.w, h / d.h));
    this.x = Math.max(0, (this.w - d.w * this.k) / 2);
    this.y = Math.max(0, (h - d.h * this.k) / 2);
    this.touched = false;
  }
  zoom(factor: number, cx = this.w / 2, cy = this.h / 2) {
    const k = Math.max(0.01, Math.min(6, this.k * factor)),
      f = k / this.k;
    this.x = cx - (cx - this.x) * f;
    this.y = cy - (cy - this.y) * f;
    this.k = k;
    this.touched = true;
  }
  pan(dx: number, dy: number) {
    this.x += dx;
    this.y += dy;
    this.touched = true;
  }
  // Brings a rectangle into the window, by as little as is needed.
  show(r: Box, margin = 40) {
    const left = r.x * this.k + this.x,
      top = r.y * this.k + this.y,
      right = left + r.w * this.k,
      bottom = top + r.h * this.k,
      end = this.h - this.foot;
    if (left < margin) this.x += margin - left;
    else if (right > this.w - margin) this.x -= Math.min(right - this.w + margin, left - margin);
    if (top < margin) this.y += margin - top;
    else if (bottom > end) this.y -= Math.min(bottom - end, top - margin);
  }
  // Brings a frame that was just opened into the window, at a size at which it can be read; from its left edge on where it is too
  // large for that.
  read(r: Box) {
    const margin = 24,
      top_margin = 34, // of the path that stands above
      end = this.h - this.foot,
      fits = Math.min((this.w - 2 * margin) / r.w, (end - top_margin) / r.h);
    const k = Math.min(Math.max(this.k, Math.min(1, fits)), Math.max(0.62, fits));
    if (k !== this.k) this.zoom(k / this.k, r.x * this.k + this.x, (r.y + r.h / 2) * this.k + this.y);
    const left = r.x * k + this.x,
      right = left + r.w * k,
      top = r.y * k + this.y,
      bottom = top + r.h * k;
    if (right - left > this.w - 2 * margin || left < margin) this.x += margin - left;
    else if (right > this.w - margin) this.x -= right - this.w + margin;
    if (bottom - top > end - top_margin || top < top_margin) this.y += top_margin - top;
    else if (bottom > end) this.y -= bottom - end;
  }
  // What was just closed stays in the window, and as much of the drawing as there is room for: all of it, where that is smaller.
  closed(r: Box, around: Box | undefined, d: { w: number; h: number }) {
    if (d.w * this.k <= this.w && d.h * this.k <= this.h - this.foot) {
      this.fit(d);
      return;
    }
    if (around) this.show(around);
    this.show(r);
    const within = (at: number, size: number, room: number) =>
      size <= room ? (room - size) / 2 : Math.min(0, Math.max(room - size, at));
    this.x = within(this.x, d.w * this.k, this.w);
    this.y = within(this.y, d.h * this.k, this.h - this.foot);
  }
  // The thing with this key stays where it was on the screen.
  hold(key: string, before: Drawing, after: Drawing) {
    const a = before.items.find((i) => i.key === key),
      b = after.items.find((i) => i.key === key);
    if (!a || !b) return false;
    this.x += (a.x - b.x) * this.k;
    this.y += (a.y + (a.kind === "arrow" ? 10 : 0) - b.y) * this.k;
    return true;
  }
}
