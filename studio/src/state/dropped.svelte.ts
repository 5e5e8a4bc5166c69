// A functor on its way into the stack: one that is dragged within a list of the stack, or comes from the palette.
import { add_functor, move_functor } from "./actions";

export class Dropped {
  dragged = $state<number | null>(null);
  over = $state<number | null>(null); // the place before which it would be dropped

  drag(e: DragEvent, i: number, text: string) {
    this.dragged = i;
    e.dataTransfer?.setData("text/plain", text);
  }
  allow(e: DragEvent, at: number) {
    e.preventDefault();
    e.stopPropagation(); // a place of a list is not the list's end
    this.over = at;
  }
  drop(e: DragEvent, at: number) {
    e.preventDefault();
    e.stopPropagation();
    const text = e.dataTransfer?.getData("text/x-functor");
    if (this.dragged !== null) move_functor(this.dragged, at);
    else if (text) add_functor(text, at);
    this.end();
  }
  end() {
    this.dragged = this.over = null;
  }
}
