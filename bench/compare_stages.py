#!/usr/bin/env python3
"""Sets Adjoint's pipelines beside PyTorch's (torch.distributed.pipelining, gloo on CPUs): the same weights, batches, parts,
schedule, rates, AdamW and clipping; losses and norms of the gradient step by step, and the weights after the last step.

    bench/compare_stages.py --model llama-tiny --data book.txt --stages 2 --parts 4 --schedules gpipe,1f1b

Adjoint trains with `pipeline(stages, parts, schedule)` on ranks that are threads; PyTorch runs one process per stage, its
stages cut at the same number of blocks each. Of each schedule it prints a line of JSON, and it ends with 1 where losses
part by more than --within. What a table tied across stages needs in PyTorch (the sum of its two gradients) is done here
by hand, as its users do."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import compare_loss
from compare import Failed, say
from torch_ranks import free_port

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    import torch_step
except (ModuleNotFoundError, SystemExit):
    torch = None  # said after --help

SCHEDULES = {  # Adjoint's name: PyTorch's, chunks of a rank, whether PyTorch wants a list of them
    "gpipe": ("ScheduleGPipe", 1, False), "1f1b": ("Schedule1F1B", 1, False),
    "interleaved": ("ScheduleInterleaved1F1B", 2, True), "zero_bubble": ("ScheduleInterleavedZeroBubble", 1, True)}


class Part(nn.Module if torch else object):
    """The blocks of one chunk, with the embedding before the first and the readout behind the last; its parameters have the
    whole model's names."""

    def __init__(self, whole, first, last):
        super().__init__()
        layers = len(whole.blocks)
        self.first, self.last = first, last
        self.kind, self.tied = whole.kind, whole.readout is None
        self.blocks = nn.ModuleDict({str(i): whole.blocks[i] for i in range(first, last)})
        if whole.kind == "gpt2" and first == 0:
            self.positions = whole.positions
        if whole.kind == "llama":
            self.cos, self.sin = whole.cos, whole.sin
        if first == 0:
            self.tokens = whole.tokens
        self.ends = last == layers
        if self.ends:
            self.norm = whole.norm
            if self.tied:
                self.tokens = whole.tokens
            else:
                self.readout = whole.readout

    def forward(self, x):
        if self.first == 0:
            x = self.tokens(x)
            if self.kind == "gpt2":
                x = x + self.positions(torch.arange(x.shape[1]))
        s = x.shape[1]
        angles = (self.cos[:s].to(x.dtype), self.sin[:s].to(x.dtype)) if self.kind == "llama" else None
        for block in self.blocks.values():
            x = block(x, angles)
        return F.linear(self.norm(x), (self.tokens if self.tied else self.readout).weight) if self.ends else x


def mean_loss(logits, targets):
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def worker(a):
    """One rank of PyTorch's; what it finds is left in --work."""
    import torch.distributed as dist
    import torch.distributed.pipelining as pipelining
    rank = int(os.environ["RANK"])
    torch.set_num_threads(a.threads)
    dist.init_process_group("gloo")
    name, chunks, listed = SCHEDULES[a.schedule]
    shape = torch_step.shape_of(a.model, a.settings)
    whole = torch_step.Model(shape)
    weights = torch.load(a.work / "start.pt")
    whole.load_state_dict({compare_loss.peer_name(n): t for n, t in weights.items()})
    count = a.stages * chunks
    each = shape.layers // count
    mine = [rank + a.stages * c for c in range(chunks)]
    parts = [Part(whole, i * each, (i + 1) * each) for i in mine]
    stages = [pipelining.PipelineStage(part, i, count, torch.device("cpu")) for part, i in zip(parts, mine)]
    kind = getattr(pipelining.schedules, name)
    schedule = kind(stages if listed else stages[0], n_microbatches=a.parts, loss_fn=mean_loss)
    model = nn.ModuleList(parts)
    optimizer = torch_step.adamw(model, rate=0.0, betas=(0.9, 0.99), eps=1e-8)
    raw = bytearray(a.data.read_bytes())
    text = torch.frombuffer(raw, dtype=torch.uint8)[:int(len(raw) * compare_loss.TRAIN_FRACTION)]
    tied = shape.tied and count > 1
    ends = dist.new_group([0, a.stages - 1]) if tied and a.stages > 1 else None
    tables = [p.tokens.weight for p in parts if hasattr(p, "tokens")] if tied else []
    a.device, curve = "cpu", []
    for step, rate in enumerate(json.loads((a.work / "rates.json").read_text())):
        for group in optimizer.param_groups:
            group["lr"] = rate
        tokens, targets = (t.contiguous() for t in compare_loss.crops(text, step, a, shape.context))
        losses = []
        schedule.step(*([tokens] if 0 in mine else []),
                      **({"target": targets, "losses": losses} if count - 1 in mine else {}))
        for table in tables:
            dist.all_reduce(table.grad, group=ends)
        squares = sum(p.grad.double().square().sum() for p in model.parameters())
        if tables and rank != 0:
            squares = squares - tables[0].grad.double().square().sum()  # the first rank counts it
        both = torch.stack([squares, sum(losses, torch.zeros(())).detach().double() / a.parts])
        dist.all_reduce(both)
        norm = both[0].sqrt()
        factor = (1.0 / (norm + 1e-6)).clamp(max=1.0)
        for p in model.parameters():
            p.grad.mul_(factor.to(p.grad.dtype))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        curve.append({"loss": both[1].item(), "grad_norm": norm.item()})
    torch.save({n: p.detach() for part in parts for n, p in part.named_parameters()}, a.work / f"end{rank}.pt")
    if rank == 0:
        (a.work / "curve.json").write_text(json.dumps(curve))
    dist.barrier()
    dist.destroy_process_group()


def peer_curve(a, schedule, work):
    port = free_port()
    again = [sys.executable, os.path.abspath(__file__), "--worker", "--work", str(work), "--schedule", schedule, "--model",
             a.model, "--data", str(a.data), "--stages", str(a.stages), "--parts", str(a.parts), "--batch", str(a.batch),
             "--seed", str(a.seed), "--threads", str(a.threads), "--set", *a.settings]
    ranks = []
    for r in range(a.stages):
        env = {**os.environ, "RANK": str(r), "WORLD_SIZE": str(a.stages), "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": str(port)}
        with open(work / f"said{r}", "w") as said:
            ranks.append(subprocess.Popen(again, env=env, stdout=said, stderr=said))
    if any([process.wait() for process in ranks]):
        last = [f"rank {r}: {(work / f'said{r}').read_text().strip().splitlines()[-1:]}" for r in range(a.stages)]
        raise Failed(f"PyTorch's ranks failed under {schedule}; their last words: {'; '.join(last)}")
    weights = {}
    for r in range(a.stages):
        weights.update(torch.load(work / f"end{r}.pt"))
    return json.loads((work / "curve.json").read_text()), weights


def compared(a, schedule, folder):
    chunks = SCHEDULES[schedule][1]
    with_chunks = f", chunks={chunks}" if chunks > 1 else ""
    a.stack = f"pipeline({a.stages}, parts={a.parts}, schedule={schedule}{with_chunks})"
    ours = compare_loss.adjoint_curve(a, folder, "--ranks", str(a.stages))
    saved = {name: compare_loss.saved_weights(folder / name / "model.safetensors") for name in ("start", "run")}
    torch.save(saved["start"], folder / "start.pt")
    (folder / "rates.json").write_text(json.dumps([line["lr"] for line in ours]))
    theirs, weights = peer_curve(a, schedule, folder)
    began, ended = ({compare_loss.peer_name(n): t for n, t in saved[name].items()} for name in ("start", "run"))
    if ended.keys() != weights.keys():
        raise Failed(f"PyTorch's parameters are others: {sorted(ended.keys() ^ weights.keys())[:4]}")
    moved = sum((ended[n] - began[n]).double().square().sum() for n in ended).sqrt()
    far = sum((ended[n] - weights[n]).double().square().sum() for n in ended).sqrt()
    norms = [abs(x["grad_norm"] - y["grad_norm"]) / y["grad_norm"] for x, y in zip(ours, theirs)]
    return {"peer": f"PyTorch {torch.__version__} {SCHEDULES[schedule][0]}", "stack": a.stack, "model": a.model,
            "set": a.settings, "batch": a.batch, "steps": len(ours), "first_loss": [ours[0]["loss"], theirs[0]["loss"]],
            "last_loss": [ours[-1]["loss"], theirs[-1]["loss"]],
            "losses_apart": compare_loss.worst(compare_loss.apart(ours, theirs)), "norms_apart": compare_loss.worst(norms),
            "weights_apart_of_way": (far / moved).item()}


def arguments():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent
    args.add_argument("--adjoint", type=pathlib.Path, default=root / "build/release/adjoint", help="the binary")
    args.add_argument("--model", default="char", help="a preset that both sides have")
    args.add_argument("--set", nargs="*", default=[], dest="settings", help="settings of the model, such as layers=4")
    args.add_argument("--data", type=pathlib.Path, required=True, help="a text; its bytes are the tokens")
    args.add_argument("--stages", type=int, default=2)
    args.add_argument("--parts", type=int, default=4)
    args.add_argument("--schedules", default=",".join(SCHEDULES), help="of " + ", ".join(SCHEDULES))
    args.add_argument("--steps", type=int, default=20)
    args.add_argument("--batch", type=int, default=8)
    args.add_argument("--lr", type=float, default=6e-4)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--threads", type=int, default=1, help="per rank")
    args.add_argument("--within", type=float, default=1e-4, help="how far apart losses may be, relative to PyTorch's")
    args.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args.add_argument("--work", type=pathlib.Path, help=argparse.SUPPRESS)
    args.add_argument("--schedule", help=argparse.SUPPRESS)
    a = args.parse_args()
    a.context, a.device, a.bf16 = 0, "cpu", False
    if torch is None:
        raise Failed("PyTorch is not installed for this Python, and it is the peer")
    if a.worker:
        return a
    if not any(s.startswith("vocab=") for s in a.settings):
        a.settings.append(f"vocab={max(256, torch_step.MODELS[a.model].vocab)}")
    layers = torch_step.shape_of(a.model, a.settings).layers
    for schedule in a.schedules.split(","):
        if schedule not in SCHEDULES:
            raise Failed(f"--schedules: there is no '{schedule}', only {', '.join(SCHEDULES)}")
        if layers % (a.stages * SCHEDULES[schedule][1]):
            raise Failed(f"{layers} blocks are not shared evenly by {a.stages} stages under {schedule}; say --set layers=N")
    if a.batch % a.parts:
        raise Failed(f"a batch of {a.batch} is not shared evenly by {a.parts} parts")
    a.adjoint = a.adjoint.resolve()
    return a


def main():
    try:
        a = arguments()
        if a.worker:
            worker(a)
            return 0
        parted = False
        for schedule in a.schedules.split(","):
            with tempfile.TemporaryDirectory(prefix="adjoint_stages") as folder:
                found = compared(a, schedule, pathlib.Path(folder))
            print(json.dumps(found), flush=True)
            parted |= not found["losses_apart"]["difference"] <= a.within
    except Failed as why:
        say(f"compare_stages: {why}")
        return 1
    return 1 if parted else 0


if __name__ == "__main__":
    sys.exit(main())
