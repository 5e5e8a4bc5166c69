#!/usr/bin/env python3
"""Times training steps of the same model on several ranks in PyTorch with gloo on the CPU: the peer of `adjoint bench ranks`.

    bench/torch_ranks.py --model ref --ranks 8 --threads 2 --batch 64

Every mode runs in fresh processes, one per rank, each bound to its own cores: `alone`, ranks that work for themselves at
the same time, each on its share of the batch; `ddp`, DistributedDataParallel; `fsdp`, fully_shard of every block and of
the whole. --batch is of all ranks together, --threads per rank. Of each mode it prints a line of JSON: the median of
steps, each the slowest rank's; the share of the samples per second that ranks alone make; and the largest peak resident
memory of a rank. Model, optimizer, clipping and tokens are bench/torch_step.py's."""
import argparse
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import time

MODES = ("alone", "ddp", "fsdp")


def cores_of(rank, threads):
    """The rank's cores among those that this process may use; None where there are too few."""
    cores = sorted(os.sched_getaffinity(0))
    first = rank * threads
    return set(cores[first:first + threads]) if first + threads <= len(cores) else None


def worker(a):
    """One rank of one mode; the last line of its output is its JSON."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    import torch
    import torch.distributed as dist
    import torch.nn as nn

    import torch_step

    torch.set_num_threads(a.threads)
    torch.manual_seed(1)  # the same parameters on every rank
    dist.init_process_group("gloo")
    shape = torch_step.shape_of(a.model, a.set + [f"context={a.context}"] * bool(a.context))
    model = torch_step.Model(shape)
    forward = model
    if a.mode == "fsdp":
        from torch.distributed.fsdp import fully_shard
        mesh = dist.device_mesh.init_device_mesh("cpu", (ranks,))
        for block in model.blocks:
            if not a.eager:
                block.compile()
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        if not a.eager:
            model.compile()
        if a.mode == "ddp":
            forward = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch_step.adamw(model, rate=1e-4)
    torch.manual_seed(2 + rank)
    drawn = torch.exp(torch.rand(a.batch // ranks, shape.context + 1) * math.log(shape.vocab + 1)).long() - 1
    tokens = drawn.clamp(0, shape.vocab - 1)

    def step():
        loss = forward(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    for _ in range(a.warmup):
        step()
    seconds = []
    for _ in range(a.steps):
        dist.barrier()
        before = time.perf_counter()
        loss = step()
        taken = torch.tensor([time.perf_counter() - before], dtype=torch.float64)
        dist.all_reduce(taken, op=dist.ReduceOp.MAX)
        seconds.append(taken.item())
    peak = torch.tensor([torch_step.peak_resident()], dtype=torch.int64)
    dist.all_reduce(peak, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(json.dumps({"what": "torch " + torch.__version__ + (" eager" if a.eager else " compiled"), "mode": a.mode,
                          "model": a.model, "batch": a.batch, "context": shape.context, "ranks": ranks,
                          "threads": a.threads, "loss": loss, "measured_step_s": statistics.median(seconds), "measured_steps_s": seconds,
                          "tokens_per_s": a.batch * shape.context / statistics.median(seconds),
                          "peak_resident_bytes": peak.item()}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_mode(mode, a, arguments):
    """Starts the ranks of a mode and returns what the first one says."""
    port = free_port()
    ranks = []
    for rank in range(a.ranks):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(a.ranks), "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": str(port), "OMP_NUM_THREADS": str(a.threads)}
        cores = cores_of(rank, a.threads)
        bind = (lambda cores=cores: os.sched_setaffinity(0, cores)) if cores else None
        ranks.append(subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker", "--mode", mode, *arguments],
                                      env=env, preexec_fn=bind, text=True,
                                      stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL))
    said = ranks[0].communicate()[0]
    if any([process.wait() for process in ranks]):
        sys.stderr.write(f"torch_ranks: {mode} failed\n")
        return None
    return json.loads(said.strip().splitlines()[-1])


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--model", default="ref", help="one of bench/torch_step.py's")
    args.add_argument("--ranks", type=int, default=2)
    args.add_argument("--threads", type=int, default=1, help="per rank")
    args.add_argument("--batch", type=int, default=16, help="samples of all ranks together")
    args.add_argument("--context", type=int, help="the model's own unless said")
    args.add_argument("--steps", type=int, default=15)
    args.add_argument("--warmup", type=int, default=3)
    args.add_argument("--modes", default=",".join(MODES), help="of " + ", ".join(MODES))
    args.add_argument("--eager", action="store_true", help="without torch.compile")
    args.add_argument("--set", nargs="*", default=[], help="settings of the model, such as layers=2")
    args.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args.add_argument("--mode", choices=MODES, help=argparse.SUPPRESS)
    a = args.parse_args()
    if a.worker:
        return worker(a)
    modes = a.modes.split(",")
    if wrong := [mode for mode in modes if mode not in MODES]:
        args.exit(1, f"torch_ranks: --modes: there is no '{wrong[0]}', only {', '.join(MODES)}\n")
    if a.ranks < 1 or a.threads < 1 or a.steps < 1 or a.batch % a.ranks:
        args.exit(1, f"torch_ranks: a batch of {a.batch} is not shared evenly by {a.ranks} ranks\n")
    if cores_of(a.ranks - 1, a.threads) is None:
        sys.stderr.write(f"torch_ranks: fewer cores than {a.ranks} x {a.threads}: ranks are not bound\n")
    arguments = ["--model", a.model, "--threads", str(a.threads), "--batch", str(a.batch), "--steps", str(a.steps),
                 "--warmup", str(a.warmup)]
    arguments += ["--context", str(a.context)] * bool(a.context) + ["--eager"] * a.eager
    arguments += ["--set", *a.set] * bool(a.set)
    alone = None
    for mode in modes:
        found = run_mode(mode, a, arguments)
        if not found:
            continue
        alone = found if mode == "alone" else alone
        if alone:
            found["share"] = alone["measured_step_s"] / found["measured_step_s"]
        print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
