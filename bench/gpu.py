#!/usr/bin/env python3
"""Measures every step of docs/gpu.md's tables, and what `adjoint plan` foretold of it: time, bytes, utilization.

Utilization is the FLOPs that the model asks for (nothing recomputed) over the time, as a share of the fastest large product
of the whole run, so that all rows have one ceiling. bench/hybrid.scheme is a model that no line of code knows; its share
stands beside GPT-2's. A case that fails says so, and the next goes on; the script then ends with 1. Writes gpu.md and
gpu.json after every case."""
import argparse
import dataclasses
import json
import pathlib
import sys

import compare
from compare import Failed, say


@dataclasses.dataclass(frozen=True)
class Case:
    model: str
    batch: int
    stack: str
    context: int = 0  # the model's
    deterministic: bool = False
    attention: str = ""  # options that GPT-2's attention gets beside its own


KEPT = "bf16 | -recompute_cheap"
CASES = {
    "gpt2": Case("gpt2", 32, KEPT),
    "hybrid": Case("bench/hybrid.scheme", 32, KEPT),
    "gpt2-64": Case("gpt2", 64, KEPT),
    "gpt2-checkpointed": Case("gpt2", 32, "bf16 | checkpoint(every=1)"),
    "gpt2-default": Case("gpt2", 32, "bf16"),
    "gpt2-deterministic": Case("gpt2", 32, KEPT, deterministic=True),
    "ref": Case("ref", 32, KEPT),
    "llama1b": Case("llama3.2-1b", 8, "bf16", context=2048),
    "gemma2": Case("gemma2-124m", 32, "bf16"),
    "mixtral": Case("mixtral-8x124m", 32, "bf16"),
    **{f"gpt2-{name}": Case("gpt2", 32, "bf16", attention=option) for name, option in [
        ("window", "window=256"), ("cap", "cap=50"), ("alibi", "alibi=yes"), ("sinks", "sinks=param(heads)"),
        ("segments", "segments=segments"), ("dropout", "dropout=0.1"), ("bias", "bias=param(heads, 128)")]},
}
# For trying this script where there is no GPU: sizes that every case's model takes.
SMALL = ["layers=2", "hidden=96", "heads=24", "ffn=176", "vocab=101"]


def with_attention(option, folder):
    """GPT-2's text with another attention, in a file of its own."""
    text = (compare.HERE.parent / "models/gpt2.scheme").read_text()
    for old, new in [("dropout=dropout)\n  a =", option + ")\n  a ="), ("x[batch, seq, hidden]:", "x[batch, seq, hidden], segments:"),
                     ("targets[batch, seq]:", "targets[batch, seq], segments[batch, seq]:"),
                     ("(dropout(x, dropout))", "(dropout(x, dropout), segments)")]:
        if option != "segments=segments" and "segments" in new:
            continue
        if old not in text:
            raise Failed(f"models/gpt2.scheme no longer has '{old}'")
        text = text.replace(old, new)
    file = folder / f"gpt2_{option.partition('=')[0]}.scheme"
    file.write_text(text)
    return str(file)


def measured(a, case):
    root = compare.HERE.parent
    model = str(root / case.model) if case.model.endswith(".scheme") else case.model
    if case.attention:
        model = with_attention(case.attention, a.out)
    shape = ["--model", model, "--batch", str(case.batch), "--context", str(case.context)]
    if a.small:
        shape = ["--model", model, "--batch", "2", "--context", "32", "--set", *SMALL]
    shape += ["--stack", case.stack, "--threads", str(a.threads)]
    step = compare.answered([str(a.adjoint), "bench", "step", "--json", *shape, "--device", a.device, "--steps",
                             str(a.steps), *(["--deterministic"] * case.deterministic)], a.patience)
    # After the step, which times products that are new: a plan reads the table.
    foretold = compare.answered([str(a.adjoint), "plan", "--json", *shape, "--device", a.sheet], a.patience)
    return {"foretold_s": foretold["step_s"], "foretold_bytes": foretold["peak_bytes"] + foretold["host_peak_bytes"], **step}


def row(name, case, done, ceiling):
    stack = "`" + case.stack.replace("|", "\\|") + "`" + (", deterministic" if case.deterministic else "")
    if "failed" in done:
        return [name, stack, "failed"] + [""] * 8
    seconds, rate = done["measured_step_s"], done["model_flops"] / done["measured_step_s"]
    same = "=" if done["measured_peak_bytes"] == done["foretold_bytes"] else f"{done['foretold_bytes']:,} foretold"
    return [f"{name}, {done['batch']} x {done['seq']}", stack, f"{1e3 * seconds:.2f}",
            f"{1e3 * done['fastest_s']:.2f} to {1e3 * done['slowest_s']:.2f}", f"{done['tokens_per_s'] / 1e3:,.1f} k",
            f"{rate / 1e12:.4g}", f"{100 * rate / ceiling:.1f}%", f"{done['measured_peak_bytes'] / 2**30:.2f}", same,
            f"{1e3 * done['foretold_s']:.2f}", f"{100 * (done['foretold_s'] / seconds - 1):+.1f}%"]


def table(a, results):
    ceiling = max(done.get("peak_flops_per_s", 0) for done in results.values())
    lines = [f"{a.device}, {a.steps} steps, medians; foretold by `plan --device {a.sheet}`. Utilization is of "
             f"{ceiling / 1e12:.4g} TFLOP/s, the fastest large product of this run.", "",
             "| step | stack | ms | fastest, slowest | tokens/s | TFLOP/s | utilization | GiB | as foretold | foretold ms | "
             "off by |", "|---" * 11 + "|"]
    lines += ["| " + " | ".join(row(name, CASES[name], done, ceiling)) + " |" for name, done in results.items()]
    failures = {name: done["failed"] for name, done in results.items() if "failed" in done}
    if failures:
        lines += ["", *(f"- {name}: {why.rpartition('adjoint: ')[2]}" for name, why in failures.items())]
    rates = {name: done["model_flops"] / done["measured_step_s"] for name, done in results.items() if "failed" not in done}
    if "gpt2" in rates and "hybrid" in rates:
        lines += ["", f"The hybrid reaches {rates['hybrid'] / rates['gpt2']:.3f} of GPT-2's utilization."]
    return "\n".join(lines) + "\n"


def arguments():
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Examples:\n  bench/gpu.py\n  bench/gpu.py --cases gpt2,hybrid\n"
        "  bench/gpu.py --device cpu --sheet cpu --small --threads 2 --steps 3    # tries the script")
    root = compare.HERE.parent
    args.add_argument("--adjoint", type=pathlib.Path, default=root / "build/release/adjoint", help="the binary")
    args.add_argument("--cases", default=",".join(CASES), help="of " + ", ".join(CASES))
    args.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    args.add_argument("--sheet", default="h200", help="whose times are foretold")
    args.add_argument("--steps", type=int, default=30)
    args.add_argument("--threads", type=int, default=16)
    args.add_argument("--small", action="store_true", help="models of two small blocks")
    args.add_argument("--patience", type=int, default=300, help="seconds for one command")
    args.add_argument("--out", type=pathlib.Path, default=root / "build/bench", help="folder for gpu.md and gpu.json")
    a = args.parse_args()
    a.adjoint = a.adjoint.resolve()
    a.cases = [name.strip() for name in a.cases.split(",")]
    compare.check_names(a.cases, CASES)
    compare.make_folder(a.out)
    return a


def main():
    try:
        a, results = arguments(), {}
        for i, name in enumerate(a.cases, 1):
            say(f"gpu: {i} of {len(a.cases)}: {name}")
            try:
                results[name] = measured(a, CASES[name])
                say(f"gpu: {name}: {1e3 * results[name]['measured_step_s']:.2f} ms")
            except Failed as why:
                say(f"gpu: {name}: {why}")
                results[name] = {"failed": str(why)}
            (a.out / "gpu.md").write_text(table(a, results))
            (a.out / "gpu.json").write_text(json.dumps(results, indent=1) + "\n")
    except Failed as why:
        say(f"gpu: {why}")
        return 1
    except KeyboardInterrupt:
        say("gpu: interrupted; what was measured is in the folder")
        return 130
    print(table(a, results), end="")
    return 1 if any("failed" in done for done in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
