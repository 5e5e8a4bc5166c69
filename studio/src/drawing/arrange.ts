// Where nodes of one box stand and how its edges run: elkjs in a worker, with a memory of what was asked before. Ninety-six equal
// blocks are one question. Texts are no part of the question, only sizes, so most edits ask nothing.
import ELK, { type ElkNode } from "elkjs/lib/elk-api.js";
import worker_address from "elkjs/lib/elk-worker.min.js?url";
import { while_composing } from "../state/timings";

export interface ArrangeNode {
  w: number;
  h: number;
  ins: number[];
  outs: number[];
  layer?: "first" | "last";
} // ins, outs: heights at which edges end at its left and leave at its right
export interface ArrangeEdge {
  from: [node: number, out: number];
  to: [node: number, in_: number];
  main?: boolean;
}
export interface Question {
  nodes: ArrangeNode[];
  edges: ArrangeEdge[];
  wrap?: boolean;
}
export interface Arrangement {
  w: number;
  h: number;
  nodes: { x: number; y: number }[];
  edges: [number, number][][];
}

let elk: InstanceType<typeof ELK> | undefined;
export function warm_up() {
  elk ??= new ELK({ workerFactory: () => new Worker(worker_address) });
  return elk;
}

const options = {
  "elk.algorithm": "layered",
  "elk.direction": "RIGHT",
  "elk.edgeRouting": "ORTHOGONAL",
  "elk.padding": "[top=0,left=0,bottom=0,right=0]",
  "elk.layered.considerModelOrder.strategy": "NODES_AND_EDGES",
  "elk.layered.crossingMinimization.forceNodeModelOrder": "true",
  "elk.layered.crossingMinimization.greedySwitch.type": "TWO_SIDED",
  "elk.layered.nodePlacement.strategy": "BRANDES_KOEPF",
  "elk.layered.nodePlacement.favorStraightEdges": "true",
  "elk.layered.thoroughness": "3",
  "elk.spacing.nodeNode": "16",
  "elk.layered.spacing.nodeNodeBetweenLayers": "9",
  "elk.spacing.edgeNode": "12",
  "elk.spacing.edgeEdge": "10",
  "elk.layered.spacing.edgeNodeBetweenLayers": "7",
  "elk.layered.spacing.edgeEdgeBetweenLayers": "10",
  "elk.separateConnectedComponents": "false",
};
const known = new Map<string, Arrangement | Promise<Arrangement>>();

export function arrange(question: Question): Arrangement | Promise<Arrangement> {
  const key = JSON.stringify(question),
    found = known.get(key);
  if (found) return found;
  const asked = solve(question).then((answer) => {
    known.set(key, answer);
    return answer;
  });
  asked.catch(() => known.delete(key));
  known.set(key, asked);
  if (known.size > 3000) known.delete(known.keys().next().value!);
  return asked;
}
async function solve({ nodes, edges, wrap }: Question): Promise<Arrangement> {
  const graph: ElkNode = {
    id: "root",
    layoutOptions: wrap
      ? {
          ...options,
          "elk.layered.wrapping.strategy": "MULTI_EDGE",
          "elk.aspectRatio": "1.5",
          "elk.layered.wrapping.additionalEdgeSpacing": "16",
          "elk.layered.wrapping.correctionFactor": "1",
        }
      : options,
    children: nodes.map((n, i) => ({
      id: `n${i}`,
      width: n.w,
      height: n.h,
      layoutOptions: {
        "elk.portConstraints": "FIXED_POS",
        ...(n.layer && { "elk.layered.layering.layerConstraint": n.layer === "first" ? "FIRST" : "LAST" }),
      },
      ports: [
        ...n.ins.map((y, k) => ({
          id: `n${i}w${k}`,
          x: 0,
          y,
          width: 0,
          height: 0,
          layoutOptions: { "elk.port.side": "WEST" },
        })),
        ...n.outs.map((y, k) => ({
          id: `n${i}e${k}`,
          x: n.w,
          y,
          width: 0,
          height: 0,
          layoutOptions: { "elk.port.side": "EAST" },
        })),
      ],
    })),
    edges: edges.map((e, i) => ({
      id: `e${i}`,
      sources: [`n${e.from[0]}e${e.from[1]}`],
      targets: [`n${e.to[0]}w${e.to[1]}`],
      layoutOptions: {
        "elk.layered.priority.straightness": e.main ? "20" : "1",
        "elk.layered.priority.direction": "1",
        "elk.layered.priority.shortness": e.main ? "5" : "1",
      },
    })),
  };
  const answer = await while_composing(warm_up().layout(graph));
  return {
    w: answer.width ?? 0,
    h: answer.height ?? 0,
    nodes: answer.children!.map((n) => ({ x: n.x!, y: n.y! })),
    edges: answer.edges!.map((e) =>
      e.sections!.flatMap((s) =>
        [s.startPoint, ...(s.bendPoints ?? []), s.endPoint].map((p): [number, number] => [p.x, p.y]),
      ),
    ),
  };
}
