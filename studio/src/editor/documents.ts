// The editor's documents: one state a path, so that undo of each goes on where it was left. Every change of a text, typed or drawn,
// is a transaction of its document.
import {
  acceptCompletion,
  autocompletion,
  closeBrackets,
  closeBracketsKeymap,
  completionKeymap,
} from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab, isolateHistory, redo, undo } from "@codemirror/commands";
import { bracketMatching, indentUnit } from "@codemirror/language";
import { lintGutter, setDiagnostics, type Diagnostic } from "@codemirror/lint";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import {
  EditorState,
  type ChangeSpec,
  type Extension,
  type Transaction,
  type TransactionSpec,
} from "@codemirror/state";
import {
  EditorView,
  drawSelection,
  highlightActiveLine,
  highlightActiveLineGutter,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { tick } from "svelte";
import type { Mistake } from "../api/client";
import { project, type OpenText } from "../state/project.svelte";
import { results } from "../state/results.svelte";
import { view } from "../state/view.svelte";
import { colours, completions, language } from "./language";

const states = new Map<string, EditorState>(); // of texts that are not in the editor now
const names = new Map<string, { path: string }>(); // what the extensions of a document know of its name, which may change
let editor: EditorView | undefined,
  shown = "";
// What waits for a copy of a library's text: a keystroke, or an edit of the drawing.
export interface Waiting {
  pending: ChangeSpec | null;
  then: (() => void) | null;
}
export const offer: Waiting & { ask: (() => void) | null } = { pending: null, then: null, ask: null };
export function take_waiting(): Waiting {
  const { pending, then } = offer;
  offer.pending = offer.then = null;
  return { pending, then };
}
// Asks under which name a text is to be saved, where it can be seen.
export async function ask_for_name(path: string) {
  project.active = path;
  view.right = true;
  await tick();
  offer.ask?.();
}

const named = EditorView.contentAttributes.of({
  "aria-label": "Text",
  "aria-description": "Tab indents; Escape and then Tab leaves the text.",
  tabindex: "0",
});
const look = EditorView.theme({
  "&": { height: "100%", fontSize: "12.5px", backgroundColor: "var(--sheet)", color: "var(--ink)" },
  ".cm-content": { fontFamily: "var(--mono)", caretColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--sheet)", color: "var(--quiet)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--raised) 60%, transparent)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--selected) !important" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-tooltip": { backgroundColor: "var(--sheet)", color: "var(--ink)", border: "1px solid var(--rule-strong)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--selected)", color: "var(--ink)" },
  ".cm-completionDetail": { color: "var(--quiet)", fontStyle: "normal" },
  ".cm-spoken": { backgroundColor: "var(--lit)", outline: "1px solid var(--lit-edge)" },
});

function extensions(path: string): Extension {
  const own = { path };
  names.set(path, own);
  return [
    lineNumbers(),
    highlightActiveLineGutter(),
    highlightActiveLine(),
    history(),
    drawSelection(),
    bracketMatching(),
    EditorView.lineWrapping,
    closeBrackets(),
    indentUnit.of("  "),
    autocompletion({
      override: [
        completions(() => ({
          ops: results.ops,
          functors: results.functors,
        })),
      ],
    }),
    highlightSelectionMatches(),
    lintGutter(),
    language,
    colours,
    look,
    keymap.of([
      { key: "Tab", run: acceptCompletion },
      indentWithTab,
      ...closeBracketsKeymap,
      ...completionKeymap,
      ...searchKeymap,
      ...historyKeymap,
      ...defaultKeymap,
    ]),
    named,
    // Lines end with \n here; a \r of a text whose lines end in several ways is a letter like others, so that nothing is lost.
    EditorState.lineSeparator.of("\n"),
    EditorView.clipboardInputFilter.of((text) => text.replace(/\r\n?/g, "\n")),
    // A text of the library cannot be changed: the first keystroke offers to save it under a name of the folder.
    EditorState.transactionFilter.of((tr: Transaction) => {
      if (!tr.docChanged || !project.find(own.path)?.library || tr.isUserEvent("reload")) return tr;
      offer.pending = tr.changes;
      setTimeout(() => offer.ask?.());
      return [];
    }),
    EditorView.updateListener.of((update) => {
      if (update.docChanged) changed(own.path, update.state, update.transactions);
    }),
  ];
}
function changed(path: string, state: EditorState, transactions: readonly Transaction[]) {
  const text = project.find(path);
  if (!text) return;
  text.text = state.doc.toString();
  if (transactions.some((t) => t.isUserEvent("reload"))) return;
  project.forget_refusal();
  results.changed(transactions.some((t) => t.isUserEvent("drawn")) ? "drawn" : "typed", 80);
}
export function attach(parent: HTMLElement): () => void {
  editor = new EditorView({ parent, extensions: [named, EditorState.readOnly.of(true)] }); // until there is a text
  return () => {
    if (shown && editor) states.set(shown, editor.state);
    editor?.destroy();
    editor = undefined;
    shown = "";
  };
}
// The document of a text as the editor would show it; what was read again from the disk is a change of it.
function state_of(text: OpenText): EditorState {
  const state = states.get(text.path) ?? EditorState.create({ doc: text.text, extensions: extensions(text.path) });
  return state.doc.toString() === text.text ? state : state.update(change_of(state, text.text, "reload")).state;
}
export function show_text(text: OpenText) {
  if (!editor) return;
  if (shown !== text.path) {
    if (shown) states.set(shown, editor.state);
    shown = text.path;
    editor.setState(state_of(text));
  }
  if (editor.state.doc.toString() !== text.text) editor.dispatch(change_of(editor.state, text.text, "reload"));
}
// A text that has another name keeps its undo.
project.moved = (from, to) => {
  const state = states.get(from),
    own = names.get(from);
  states.delete(from);
  states.delete(to);
  if (state) states.set(to, state);
  names.delete(from);
  if (own) {
    own.path = to;
    names.set(to, own);
  }
  if (shown === from) shown = to;
};
// The smallest change that makes another text of a document, as one step of undo.
function change_of(
  state: EditorState,
  text: string,
  event: "drawn" | "reload",
  select?: { from: number; to: number },
): TransactionSpec {
  const was = state.doc.toString();
  let from = 0,
    end = was.length,
    to = text.length;
  while (from < end && from < to && was[from] === text[from]) from++;
  while (end > from && to > from && was[end - 1] === text[to - 1]) {
    end--;
    to--;
  }
  return {
    changes: { from, to: end, insert: text.slice(from, to) },
    selection: select ? { anchor: select.from, head: select.to } : undefined,
    scrollIntoView: true,
    userEvent: event,
    annotations: isolateHistory.of("full"),
  };
}
// A command of the editor upon a text, whether the editor shows it or not.
function command_on(
  text: OpenText,
  run: (target: { state: EditorState; dispatch: (tr: Transaction) => void }) => unknown,
) {
  if (editor && shown === text.path) {
    run(editor);
    return;
  }
  const dispatch = (tr: Transaction) => {
    states.set(text.path, tr.state);
    if (tr.docChanged) changed(text.path, tr.state, [tr]);
  };
  run({ state: state_of(text), dispatch });
}
// Gives a document another text.
export function change_text(path: string, text: string, select: { from: number; to: number }) {
  const open = project.find(path);
  if (open) command_on(open, ({ state, dispatch }) => dispatch(state.update(change_of(state, text, "drawn", select))));
}
export function undo_text() {
  if (project.text) command_on(project.text, undo);
}
export function redo_text() {
  if (project.text) command_on(project.text, redo);
}
export function apply_waiting(path: string, { pending, then }: Waiting) {
  if (then) then();
  else if (editor && shown === path && pending) {
    editor.dispatch({ changes: pending, userEvent: "input" });
    editor.focus();
  }
}
export function reveal(from: number, to: number) {
  editor?.dispatch({
    selection: { anchor: from, head: to },
    effects: EditorView.scrollIntoView(from, { y: "center" }),
  });
}
// Byte offsets, which programs count in, as places of the text; a line end may be two bytes on disk and is one letter here.
export function place_of_byte(text: string, offset: number, crlf = false): number {
  let bytes = 0,
    i = 0;
  while (i < text.length && bytes < offset) {
    const c = text.codePointAt(i)!;
    bytes += c === 10 && crlf ? 2 : c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    i += c > 0xffff ? 2 : 1;
  }
  return i;
}
// Underlines where a mistake is; of one that names another file or no place, nothing.
export function underline(path: string, mistake: Mistake | null) {
  if (!editor || shown !== path) return;
  const doc = editor.state.doc,
    found: Diagnostic[] = [];
  if (mistake?.line && (!mistake.file || mistake.file === path || mistake.file.endsWith(`/${path}`))) {
    const line = doc.line(Math.min(mistake.line, doc.lines)),
      from = line.from + place_of_byte(line.text, (mistake.column ?? 1) - 1); // columns count bytes
    const word = /^[\w#^]+/.exec(line.text.slice(from - line.from)),
      to = Math.min(line.to, from + Math.max(1, word?.[0].length ?? 1));
    // Where nothing stands, as at the end of the text, the letter before it is marked.
    const begin = from < to ? from : doc.sliceString(0, to).trimEnd().length - 1;
    found.push({ from: Math.max(0, begin), to: Math.max(to, 0), severity: "error", message: mistake.message });
  }
  editor.dispatch(setDiagnostics(editor.state, found));
}
