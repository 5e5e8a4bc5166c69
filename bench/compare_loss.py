#!/usr/bin/env python3
"""Sets Adjoint's losses beside PyTorch's, step by step: the same weights, batches, rates, AdamW and clipping.

Adjoint saves its initial weights by a run of one step whose rate is 0, and trains from them; PyTorch reads them too, draws
the same crops of the text (Philox, as in src/data/batches.cpp) and takes each step's rate from Adjoint's log. What is left
is rounding, which training magnifies step by step; --reference trains PyTorch in float64 as well, and says how far each
of the two is from that. Writes loss_MODEL.md and loss_MODEL.json; ends with 1 where the curves part by more than
--within."""
import argparse
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

import compare
from compare import Failed, say

try:
    import torch
    import torch_step
except (ModuleNotFoundError, SystemExit):
    torch = None  # said after --help

TRAIN_FRACTION = 1 - 0.1  # of the text; the rest is Adjoint's default for validation
NAMES = {  # Adjoint's of a part of a block: the peer's
    "layer_norm#1": "norm1", "layer_norm#2": "norm2", "rms_norm#1": "norm1", "rms_norm#2": "norm2",
    "proj": "out", "o": "out"}
OUTSIDE = {"wte": "tokens", "wpe": "positions", "layer_norm#1": "norm", "rms_norm#1": "norm"}
MASK = 2**64 - 1


def philox(counter, key):
    """Philox4x32-10, as in src/base/philox.h."""
    a, b, c, d = counter
    low, high = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = q >> 32 ^ b ^ low, q & 0xFFFFFFFF, p >> 32 ^ d ^ high, p & 0xFFFFFFFF
        low, high = low + 0x9E3779B9 & 0xFFFFFFFF, high + 0xBB67AE85 & 0xFFFFFFFF
    return a, b, c, d


def random_key(seed, path):
    h = 0xCBF29CE484222325
    for byte in path.encode():
        h = (h ^ byte) * 0x100000001B3 & MASK
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & MASK
    h ^= h >> 33
    h ^= seed * 0x9E3779B97F4A7C15 & MASK
    h = (h ^ h >> 29) * 0xBF58476D1CE4E5B9 & MASK
    return h ^ h >> 32


def crops(text, step, a, context):
    """Tokens and targets of a step, [batch, context] each: the bytes that Adjoint's byte tokenizer gives."""
    key, starts = random_key(a.seed, "data.train"), len(text) - context
    rows = []
    for row in range(a.batch):
        words = philox((row, 0, step, 0), key)
        start = (words[1] << 32 | words[0]) % starts
        rows.append(text[start:start + context + 1])
    both = torch.stack(rows).long().to(a.device)
    return both[:, :-1], both[:, 1:]


def saved_weights(file):
    """The tensors of a safetensors file of float32, by name."""
    with open(file, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = bytearray(f.read())
    header.pop("__metadata__", None)
    tensors = {}
    for name, about in header.items():
        first, last = about["data_offsets"]
        flat = torch.frombuffer(data, dtype=torch.float32, offset=first, count=(last - first) // 4)
        tensors[name] = flat.view(about["shape"])
    return tensors


def peer_name(name):
    """block[3].proj.weight -> blocks.3.out.weight"""
    owner, what = name.rsplit(".", 1)
    if not owner.startswith("block["):
        return f"{OUTSIDE.get(owner, owner)}.{what}"
    number, part = owner.removeprefix("block[").split("].")
    return f"blocks.{number}.{NAMES.get(part, part)}.{what}"


def adjoint(a, *more):
    command = [str(a.adjoint), "train", "--json", "--data", str(a.data), "--steps", str(a.steps), "--log-every", "1",
               "--eval-every", "0", "--eval-batches", "1", "--save-every", "0", "--seed", str(a.seed), "--threads",
               str(a.threads), *more]
    metrics = pathlib.Path(more[more.index("--out") + 1]) / "metrics.jsonl"
    try:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   env=compare.environment())
    except OSError as error:
        raise Failed(f"--adjoint: {a.adjoint} cannot be run: {error.strerror}") from error
    began = last = time.monotonic()
    try:
        while process.poll() is None:
            time.sleep(0.1)
            if time.monotonic() - last > 5:
                last = time.monotonic()
                done = len(metrics.read_text().splitlines()) if metrics.exists() else 0
                say(f"adjoint: step {done}, {last - began:.0f} s")
    finally:
        process.terminate()  # only where this was interrupted is it still there
        process.wait()
    if process.returncode != 0:
        raise Failed(f"'{' '.join(command)}' ended with {process.returncode}: {process.stderr.read().strip()}")
    return [json.loads(line) for line in metrics.read_text().splitlines()]


def adjoint_curve(a, folder, *more):
    """The losses, norms and rates of Adjoint's steps; its initial weights are then in folder/start, its last in folder/run."""
    settings = ["--set", *a.settings] if a.settings else []
    start, run = str(folder / "start"), str(folder / "run")
    # On a CPU and one sample, whatever the run's: nothing is computed that matters.
    adjoint(a, "--model", a.model, *settings, "--tokenizer", "byte", "--context", str(a.context), "--out", start, "--batch",
            "1", "--stop-after", "1", "--optimizer", "sgd", "--lr", "0", "--min-lr", "0")
    say(f"adjoint: {a.steps} steps on {a.device}")
    stack = a.stack or ("bf16" if a.bf16 else "")
    return adjoint(a, "--init", start, "--out", run, "--batch", str(a.batch), "--optimizer", "adamw", "--lr", str(a.lr),
                   "--min-lr", "-1", "--device", a.device, *(["--stack", stack] if stack else []), *more)


def clip_by_exact_norm(parameters, most):
    """clip_grad_norm_ with a sum of squares in float64. PyTorch 1.13's own on a CPU is 1e-5 to 1e-3 off for large tensors,
    and every parameter alike then takes a step of another length: that alone parts the curves by 1e-3 within 200 steps."""
    gradients = [p.grad for p in parameters]
    norm = torch.stack([g.double().square().sum() for g in gradients]).sum().sqrt()
    factor = (most / (norm + 1e-6)).clamp(max=1.0)
    for g in gradients:
        g.mul_(factor.to(g.dtype))
    return norm


def torch_curve(a, shape, weights, rates, what, dtype):
    """The losses and norms of as many steps as there are rates."""
    torch.set_float32_matmul_precision("highest")  # as Adjoint multiplies: no tf32
    model = torch_step.Model(shape).to(a.device, dtype)
    model.load_state_dict({peer_name(name): tensor for name, tensor in weights.items()})
    optimizer = torch_step.adamw(model, rate=0.0, betas=(0.9, 0.99), eps=1e-8)  # Adjoint's defaults, set beside its own
    raw = bytearray(a.data.read_bytes())
    text = torch.frombuffer(raw, dtype=torch.uint8)[:int(len(raw) * TRAIN_FRACTION)]
    curve = []
    for step, rate in enumerate(rates):
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = torch_step.backward(model, *crops(text, step, a, shape.context), 1, a.bf16 and dtype == torch.float32)
        norm = (torch.nn.utils.clip_grad_norm_ if a.torch_norm else clip_by_exact_norm)(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        curve.append({"loss": loss.item(), "grad_norm": norm.item()})
        if (step + 1) % a.every == 0:
            say(f"{what}: step {step + 1} of {len(rates)}, loss {curve[-1]['loss']:.4f}")
    return curve


def apart(one, other):
    """The relative difference of two curves' losses at every step."""
    return [abs(x["loss"] - y["loss"]) / abs(y["loss"]) for x, y in zip(one, other)]


def worst(numbers):
    """The largest, and the step that it is of; a number that is none is larger than all."""
    at = max(range(len(numbers)), key=lambda i: math.inf if math.isnan(numbers[i]) else numbers[i])
    return {"difference": numbers[at], "step": at + 1}


def last_mean(curve, count):
    return sum(line["loss"] for line in curve[-count:]) / count


def table(result, every):
    curves = result["curves"]
    names = list(curves)
    steps = [s for s in range(1, result["steps"] + 1) if s == 1 or s % every == 0]
    lines = [f"{result['title']}; {result['peer']}.", "",
             "| step | " + " | ".join(names) + " | apart |", "|---" * (len(names) + 2) + "|"]
    for s in steps:
        losses = " | ".join(f"{curves[name][s - 1]['loss']:.6f}" for name in names)
        lines.append(f"| {s} | {losses} | {result['apart'][s - 1]:.1e} |")
    lines += ["", *(f"{pair}: at most {far['difference']:.1e} apart, at step {far['step']}." for pair, far in
                    result["largest"].items())]
    if "last" in result:
        means = ", ".join(f"{name} {mean:.4f}" for name, mean in result["last"]["means"].items())
        lines.append(f"Mean of the last {result['last']['steps']} losses: {means}; {result['last']['apart']:.4f} apart.")
    first = result["first_gradient_norms"]
    lines.append("Norm of the first gradient: " + ", ".join(f"{name} {norm:.7g}" for name, norm in first.items()) + ".")
    return "\n".join(lines) + "\n"


def measured(a, shape):
    with tempfile.TemporaryDirectory(prefix="adjoint_loss") as folder:
        ours = adjoint_curve(a, pathlib.Path(folder))
        weights = saved_weights(pathlib.Path(folder) / "start" / "model.safetensors")
    rates = [line["lr"] for line in ours]
    curves = {"Adjoint": [{key: line[key] for key in ("loss", "grad_norm", "lr")} for line in ours]}
    curves["PyTorch"] = torch_curve(a, shape, weights, rates, "torch", torch.float32)
    pairs = [("Adjoint", "PyTorch")]
    if a.reference:
        curves["float64"] = torch_curve(a, shape, weights, rates, "torch float64", torch.float64)
        pairs += [("Adjoint", "float64"), ("PyTorch", "float64")]
    numbers = "bf16" if a.bf16 else "float32"
    last = {}
    if a.last:
        means = {name: last_mean(curve, a.last) for name, curve in curves.items()}
        last = {"last": {"steps": a.last, "means": means, "apart": abs(means["Adjoint"] - means["PyTorch"])}}
    return {**last, "model": a.model, "set": a.settings, "batch": a.batch, "context": shape.context, "steps": len(ours), "lr": a.lr,
            "stack": a.stack, "device": a.device, "seed": a.seed, "peer": f"PyTorch {torch.__version__} eager",
            "title": f"{' '.join([a.model, *a.settings])}, {a.batch} x {shape.context} tokens, {numbers} on {a.device}",
            "curves": curves, "apart": apart(curves["Adjoint"], curves["PyTorch"]),
            "largest": {f"{x} and {y}": worst(apart(curves[x], curves[y])) for x, y in pairs},
            "first_gradient_norms": {name: curve[0]["grad_norm"] for name, curve in curves.items()}}


def arguments():
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Example:\n  bench/compare_loss.py --model char --data book.txt --steps 50 --batch 12 --reference")
    root = pathlib.Path(__file__).resolve().parent.parent
    args.add_argument("--adjoint", type=pathlib.Path, default=root / "build/release/adjoint", help="the binary")
    args.add_argument("--model", default="char", help="a preset that both sides have")
    args.add_argument("--set", nargs="*", default=[], dest="settings", help="settings of the model, such as layers=2")
    args.add_argument("--data", type=pathlib.Path, required=True, help="a text; its bytes are the tokens")
    args.add_argument("--steps", type=int, default=200)
    args.add_argument("--batch", type=int, default=8)
    args.add_argument("--context", type=int, default=0, help="0: the model's")
    args.add_argument("--lr", type=float, default=6e-4, help="the highest; Adjoint's schedule decides the rest")
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--bf16", action="store_true", help="the stack bf16 beside autocast to bf16; else float32, no tf32")
    args.add_argument("--stack", default="", help="Adjoint's, if it is to be another")
    args.add_argument("--reference", action="store_true", help="PyTorch in float64, too")
    args.add_argument("--torch-norm", action="store_true", help="PyTorch clips by its own float32 norm, not one in float64")
    args.add_argument("--every", type=int, default=20, help="steps between rows of the table")
    args.add_argument("--within", type=float, default=0.01, help="how far apart losses may be, relative to PyTorch's")
    args.add_argument("--last", type=int, default=0, help="judge the mean of so many last losses, whose difference "
                      "may be --within, and not every step")
    args.add_argument("--out", type=pathlib.Path, default=root / "build/bench", help="folder for the table and the JSON")
    a = args.parse_args()
    if torch is None:
        raise Failed("PyTorch is not installed for this Python, and it is the peer")
    if a.model not in torch_step.MODELS:
        raise Failed(f"--model: the peer has no '{a.model}'; it has {', '.join(torch_step.MODELS)}")
    if not a.data.is_file():
        raise Failed(f"--data: there is no file {a.data}")
    if not 0 <= a.last <= a.steps:
        raise Failed(f"--last: wanted 0 to {a.steps}, found {a.last}")
    for name in ("steps", "batch", "threads", "every"):
        if getattr(a, name) < 1:
            raise Failed(f"--{name}: wanted at least 1, found {getattr(a, name)}")
    if a.device == "cuda" and not torch.cuda.is_available():
        raise Failed("--device cuda: PyTorch finds no GPU")
    compare.make_folder(a.out)
    a.adjoint = a.adjoint.resolve()
    if not any(s.startswith("vocab=") for s in a.settings):
        # The preset's own table, though bytes need 256 of its rows; Adjoint would take the tokenizer's size.
        a.settings.append(f"vocab={max(256, torch_step.MODELS[a.model].vocab)}")
    return a


def main():
    try:
        a = arguments()
        try:
            shape = torch_step.shape_of(a.model, a.settings + [f"context={a.context}"] * (a.context > 0))
        except ValueError as error:
            raise Failed(str(error)) from error
        torch.set_num_threads(a.threads)
        result = measured(a, shape)
    except Failed as why:
        say(f"compare_loss: {why}")
        return 1
    except KeyboardInterrupt:
        say("compare_loss: interrupted")
        return 130
    text = table(result, a.every)
    (a.out / f"loss_{a.model}.md").write_text(text)
    (a.out / f"loss_{a.model}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(text, end="")
    if a.last:
        if not result["last"]["apart"] <= a.within:
            say(f"compare_loss: the means of the last losses are {result['last']['apart']:.4f} apart, more than {a.within:g}")
            return 1
        return 0
    far = result["largest"]["Adjoint and PyTorch"]
    if not far["difference"] <= a.within:
        say(f"compare_loss: the losses of step {far['step']} are {far['difference']:.1e} apart, more than {a.within:g}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
