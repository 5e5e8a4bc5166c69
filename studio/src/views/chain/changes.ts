// What can be done to a thing of the drawing, as entries of a menu; each is one edit of the text.
import type { Item, Line } from "../../drawing/drawing";
import type { Entry, Wrong } from "../../drawing/Menu.svelte";
import type { Tree, TreeNode } from "../../drawing/tree";
import * as edits from "../../editor/edits";
import { project } from "../../state/project.svelte";
import { results } from "../../state/results.svelte";
import { settings } from "../../state/settings.svelte";
import { view } from "../../state/view.svelte";
import { nearest } from "./nearest";

const ops = (): string[] => results.ops.filter((o) => o.callable !== false).map((o) => o.name);
const node_of = (tree: Tree, item: Item): TreeNode | undefined =>
  item.kind === "words" ? undefined : tree.by_key.get(item.source);
// The op below a node that reads an object.
function reader_in(tree: Tree, node: TreeNode, object: number): number | undefined {
  return node.morphisms.find((m) => tree.scheme.morphisms[m].inputs.includes(object));
}

const call = (tree: Tree, morphism: number) => edits.call_of(tree.scheme, morphism);
const calls = (tree: Tree, morphisms: number[]) => morphisms.map((m) => call(tree, m));
const source_of = (tree: Tree, object: number) => tree.scheme.objects[object].source;
const said = (tree: Tree, object: number) => tree.scheme.objects[object].name ?? source_of(tree, object);
type Done = Promise<string | null> | void; // as of Entry.ask
const insert_entry = (name: string, done: (call: string) => Done, key?: string): Entry => ({
  name,
  key,
  ask: { label: "Call, for example gelu or dropout(0.1)", list: ops(), check: unknown_call, done },
});
// A call of something that is neither an op nor a box of this text would break the model. A file that the text uses may have boxes
// that are not known here.
function unknown_call(typed: string): Wrong | null {
  const name = /^\s*([A-Za-z_]\w*)\s*(\^\s*\w+\s*)?(\(|$)/.exec(typed)?.[1];
  if (!typed.trim()) return { why: "Write the name of an op, such as gelu." };
  if (!name) return /[(_]/.test(typed) ? null : { why: `'${typed.trim()}' is no call of an op.` };
  const text = project.find(settings.file() || settings.model)?.text ?? "";
  const boxes = [...text.matchAll(/^([A-Za-z_]\w*)\s[^=]*:\s*(?:#.*)?$/gm)].map((m) => m[1]);
  const known = [...ops(), ...boxes];
  if (known.length === boxes.length || known.includes(name) || /^use\s/m.test(text)) return null;
  const near = nearest(name, known);
  return {
    why: `There is no op or box '${name}'.${near ? " Did you mean this?" : ""}`,
    instead: near && typed.trim().replace(name, near),
  };
}
// A box that is repeated no times leaves the drawing, where nobody could take it back.
function not_often(typed: string): Wrong | null {
  const n = Number(typed);
  if (typed.trim() && (Number.isNaN(n) || (Number.isInteger(n) && n >= 1))) return null;
  return { why: "A box is called once or more: write a whole number from 1, or the name of one." };
}
function selected_morphisms(tree: Tree): number[] {
  return view.selected.flatMap((s) => tree.by_key.get(s.source)?.morphisms ?? []);
}

export function entries_of(
  tree: Tree,
  item: Item | Line | null,
  open: (item: Item) => void,
): { title: string; entries: Entry[] } | null {
  if (!item) return null;
  if (!("kind" in item)) return line_entries(tree, item);
  if (item.kind === "words") return null;
  if (item.kind === "point") return point_entries(tree, item.object);
  const node = node_of(tree, item);
  if (!node) return null;
  const folded = calls(tree, view.selected.length > 1 ? selected_morphisms(tree) : node.morphisms);
  const fold: Entry = {
    name: view.selected.length > 1 ? `Fold ${view.selected.length} things into a box…` : "Fold into a box…",
    key: "f",
    ask: {
      label: "Name of the box",
      value: "piece", // `part` is an op
      note: () => edits.said_of_fold(folded),
      done: (name) => edits.fold_calls(folded, name),
    },
  };
  if (node.kind === "op") {
    const m = node.morphism,
      own = call(tree, m),
      made = tree.scheme.objects[node.outputs[0] ?? tree.scheme.morphisms[m].outputs[0]];
    return {
      title: `${tree.scheme.morphisms[m].op} ${node.key}`,
      entries: [
        { name: item.kind === "frame" ? "Close" : "Open", key: "Enter", run: () => open(item) },
        insert_entry("Insert an op behind it…", (op) => edits.insert_after(own, op), "i"),
        ...operands_of(tree, m).map(({ source, name }, i, all) =>
          insert_entry(
            all.length > 1 ? `Insert an op before it, on ${name}…` : "Insert an op before it…",
            (op) => edits.insert_before(own, source, op),
            i === 0 ? "b" : undefined,
          ),
        ),
        { name: "Delete", key: "Del", run: () => void edits.delete_call(own) },
        {
          name: "Rename what it gives…",
          key: "r",
          off: !made?.name,
          ask: { label: "Name", value: made?.name ?? "", done: (to) => edits.rename_value(own, to) },
        },
        ...operands_of(tree, m).map(({ object, name }, i, all) =>
          read_entry(tree, m, object, all.length > 1 ? name : "", i === 0 ? "c" : undefined),
        ),
        fold,
      ],
    };
  }
  const gathered = node.kind === "box" && node.gathered;
  return {
    title: node.name,
    entries: [
      { name: item.kind === "frame" ? "Close" : "Open", key: "Enter", run: () => open(item) },
      ...(gathered
        ? []
        : ([
            ...(gives_one(node)
              ? [insert_entry("Insert an op behind it…", (op) => edits.insert_after_box(node.key, op), "i")]
              : []),
            {
              name: "Repeat…",
              key: "p",
              ask: {
                label: "How often, for example 6 or layers",
                value: node.kind === "repeat" ? String(node.boxes.length) : "2",
                check: not_often,
                done: (n: string) => edits.repeat_box(node.key, n),
              },
            },
            {
              name: "Rename the box…",
              key: "r",
              ask: { label: "Name", value: node.name, done: (to: string) => edits.rename_box(node.key, to) },
            },
            { name: "Dissolve into its statements", run: () => void edits.unfold_box(node.key) },
            { name: "Delete", key: "Del", run: () => void edits.delete_box(node.key) },
          ] as Entry[])),
      fold,
    ],
  };
}
// What a call reads, each with a name that is no other's: values of two boxes may have one name, but their paths differ.
function operands_of(tree: Tree, morphism: number): { object: number; source: string; name: string }[] {
  const { objects, morphisms } = tree.scheme,
    all = [...new Set(morphisms[morphism].inputs)];
  const data = all.filter((o) => !["parameter", "state", "control"].includes(objects[o].role)),
    names = data.map((o) => said(tree, o));
  return data.map((object, i) => {
    const source = source_of(tree, object),
      alone = names.indexOf(names[i]) === names.lastIndexOf(names[i]);
    return { object, source, name: alone ? names[i] : source };
  });
}
function read_entry(tree: Tree, morphism: number, object: number, instead: string, key?: string): Entry {
  const own = call(tree, morphism),
    source = source_of(tree, object);
  const name = instead ? `Read another value instead of ${instead}…` : "Read another value…";
  return {
    name,
    key,
    ask: {
      label: `Name of the value that it reads instead of ${instead || said(tree, object)}`,
      done: (value) => edits.connect_to(own, source, value),
    },
  };
}
// A call can be put around what gives one value.
const gives_one = (node: TreeNode) => node.outputs.length === 1;
// An op that is dropped on something is inserted as its menu would. An open box is the place of many things, so it is not meant itself.
export function drop_op(tree: Tree, item: Item | Line | null, op: string) {
  const box = item && "kind" in item && item.kind === "frame" && item.node !== "op",
    entry = box ? undefined : entries_of(tree, item, () => {})?.entries.find((e) => e.key === "i");
  if (entry?.ask) void entry.ask.done(op);
  else project.say("Drop an op on a line, a point or a call; a double click opens what they are in.", "bad");
}

function point_entries(tree: Tree, object: number): { title: string; entries: Entry[] } {
  const o = tree.scheme.objects[object],
    maker = tree.maker[object],
    names = [...new Set(o.axes.flatMap((a) => [...a.name.matchAll(/[A-Za-z_]\w*/g)].map((m) => m[0])))].filter(
      (n) => n !== "batch" && n !== "seq",
    );
  const made = maker >= 0 ? call(tree, maker) : null,
    reader = tree.readers[object][0],
    read = reader === undefined ? null : call(tree, reader);
  const insert = (op: string) =>
    made ? edits.insert_after(made, op) : read ? edits.insert_before(read, o.source, op) : undefined;
  const size = (n: string) => String(o.axes.find((a) => a.name === n)?.size ?? "");
  return {
    title: o.source,
    entries: [
      insert_entry("Insert an op here…", insert, "i"),
      {
        name: "Rename…",
        key: "r",
        off: !o.name && maker >= 0,
        ask: {
          label: "Name",
          value: o.name ?? o.source,
          done: (to) => (made ? edits.rename_value(made, to) : edits.rename_input(o.source, to)),
        },
      },
      ...names.map((n): Entry => ({
        name: `Change the size ${n}…`,
        key: n === names[0] ? "s" : undefined,
        ask: {
          label: `Size of ${n}`,
          value: size(n),
          done: (to) => {
            if (!settings.sets[n]) return edits.set_size(n, to);
            settings.sets = { ...settings.sets, [n]: to };
          },
        },
      })),
      ...(o.axes.some((a) => a.name === "batch")
        ? [
            {
              name: "Change the batch…",
              ask: {
                label: "Batch",
                value: String(settings.batch),
                check: (to: string) =>
                  Math.round(Number(to)) > 0 ? null : { why: "A batch is a whole number above 0." },
                done: (to: string) => {
                  settings.batch = Math.round(Number(to));
                },
              },
            },
          ]
        : []),
    ],
  };
}
function line_entries(tree: Tree, l: Line): { title: string; entries: Entry[] } | null {
  if (l.object < 0) return null;
  const target = l.to_key ? tree.by_key.get(l.to_key) : undefined,
    reader = target ? reader_in(tree, target, l.object) : undefined;
  if (reader === undefined || target?.kind !== "op") return point_entries(tree, l.object);
  const own = call(tree, reader),
    source = source_of(tree, l.object);
  return {
    title: l.source,
    entries: [
      insert_entry("Insert an op on this arrow…", (op) => edits.insert_before(own, source, op), "i"),
      read_entry(tree, reader, l.object, said(tree, l.object), "c"),
    ],
  };
}
