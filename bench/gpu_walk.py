#!/usr/bin/env python3
"""Walks a step's memory down, trick by trick, beside PyTorch with the same trick: the tables of docs/memory.md, measured.

For every row: what `adjoint plan` says before (bytes, milliseconds), what `adjoint bench step` touches and takes, and what
PyTorch allocates and takes with accumulation, checkpointing or autocast to bf16. float32 is float32 on both sides, not tf32.
Rows with a budget run the stack that `adjoint plan --fit` chooses. Choosing wants no GPU: --plan-only does it and keeps
the answers in walk_plans.json, which --plans reads on the machine that has one. A row that fails says so, and the next goes
on; the script then ends with 1. Writes walk.md and walk.json after every row."""
import argparse
import dataclasses
import json
import pathlib
import sys

import compare
from compare import Failed, say


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    stack: str = ""
    fit: str = ""  # a budget that chooses the stack
    may_approximate: bool = False  # it may choose bf16
    torch: tuple | None = None  # torch_step.py's flags; None: PyTorch has no such row
    compiled: bool = False  # with torch.compile, which takes a minute


WALK = [
    Row("plain, everything kept", "-recompute_cheap", torch=()),
    Row("as it comes"),
    Row("4 parts", "accumulate(4)", torch=("--accumulate", "4")),
    Row("4 parts, checkpointed", "accumulate(4) | checkpoint(block)", torch=("--accumulate", "4", "--checkpoint")),
    Row("4 parts, checkpointed, few logits", "accumulate(4) | checkpoint(block) | chunk_readout(1024)"),
    Row("checkpointed", "checkpoint(block)", torch=("--checkpoint",)),
    Row("bf16, everything kept", "bf16 | -recompute_cheap", torch=("--bf16",), compiled=True),
    Row("bf16", "bf16"),
    Row("bf16, checkpointed", "bf16 | checkpoint(block)", torch=("--bf16", "--checkpoint"), compiled=True),
    Row("bf16, 4 parts, checkpointed", "bf16 | accumulate(4) | checkpoint(block)",
        torch=("--bf16", "--accumulate", "4", "--checkpoint")),
]


def all_rows(a):
    rows = WALK + [Row(f"--fit {budget}", fit=budget) for budget in a.fits]
    return rows + [Row(f"--fit {budget} --allow-approximating", fit=budget, may_approximate=True)
                   for budget in a.bf16_fits]


def step_flags(a):
    flags = ["--model", a.model, "--batch", str(a.batch), "--context", str(a.context), "--threads", str(a.threads)]
    return flags + (["--set", *a.settings] if a.settings else [])


def plan(a, row):
    command = [str(a.adjoint), "plan", "--json", *step_flags(a), "--device", a.sheet, "--stack", row.stack]
    if row.fit:
        command += ["--fit", row.fit] + ["--allow-approximating"] * row.may_approximate
    said = compare.answered(command, a.patience)
    return {key: said[key] for key in ("stack", "peak_bytes", "host_peak_bytes", "step_s")}


def adjoint_step(a, stack):
    said = compare.answered([str(a.adjoint), "bench", "step", "--json", *step_flags(a), "--device", a.device, "--stack",
                             stack, "--steps", str(a.steps), "--warmup", "2"], a.patience)
    return {key: value for key, value in said.items() if key not in ("model", "stack")}


def torch_step(a, row):
    flags = list(row.torch) + ["--eager"] * (a.eager or not row.compiled)
    context = ["--context", str(a.context)] if a.context else []
    settings = ["--set", *a.settings] if a.settings else []
    return compare.answered(
        [a.python, str(compare.HERE / "torch_step.py"), "--model", a.model, "--batch", str(a.batch), *context, "--threads",
         str(a.threads), *settings, "--device", a.device, "--no-tf32", "--steps", str(a.steps), "--warmup", "2", *flags],
        a.patience)


def attempt(what, work):
    """The result, or {"failed": why}: one row does not end the walk."""
    say(f"walk: {what}")
    try:
        return work()
    except Failed as why:
        say(f"walk: {what}: {why}")
        return {"failed": str(why)}


def plans_of(a, rows):
    """The plan of every row by its name, from --plans where it has them."""
    known = {}
    if a.plans:
        try:
            kept = json.loads(a.plans.read_text())
            if kept["of"] != [*step_flags(a)[:6], *a.settings, a.sheet]:
                raise Failed(f"--plans: {a.plans} is of another step, of {' '.join(kept['of'])}")
            known = kept["rows"]
        except (OSError, ValueError, KeyError) as error:
            raise Failed(f"--plans: {a.plans} is no walk_plans.json") from error
    for row in rows:
        if row.name not in known:
            known[row.name] = attempt(f"plan: {row.name}", lambda row=row: plan(a, row))
    kept = {"of": [*step_flags(a)[:6], *a.settings, a.sheet], "rows": known}
    (a.out / "walk_plans.json").write_text(json.dumps(kept, indent=1) + "\n")
    return known


def gib(count):
    return f"{count / 2**30:.2f}"


def milliseconds(side):
    return f"{1e3 * side['step_s']:.1f}"


def cells(row, device):
    planned, ours, theirs = row["plan"], row["adjoint"], row["torch"]
    stack = planned.get("stack", row["stack"]).replace("|", "\\|")
    out = [row["name"], f"`{stack if len(stack) < 60 else stack[:57] + '...'}`" if stack else ""]
    out += ["refused", ""] if "failed" in planned else [f"{planned['peak_bytes']:,}", milliseconds(planned)]
    if not ours or "failed" in ours:
        out += ["failed" if ours else "", "", ""]
    else:
        touched, host = ours["measured_peak_bytes"], planned.get("host_peak_bytes", 0)  # the former of both tiers
        as_planned = touched == planned.get("peak_bytes", 0) + host
        more = f" + {gib(host)} host" if host else ""
        out += ["=" if as_planned else f"{touched:,}", gib(touched - host) + more, milliseconds(ours)]
    if not theirs or "failed" in theirs:
        return out + ["failed" if theirs else "", ""]
    held = gib(theirs["peak_resident_bytes"]) + " resident"
    if device == "cuda":
        held = f"{gib(theirs['gpu_bytes'])}, {gib(theirs['gpu_reserved_bytes'])} reserved"
    return out + [held, f"{milliseconds(theirs)} ({theirs['what'].removeprefix('torch ')})"]


def table(result):
    lines = [f"{result['title']}. Bytes are those of the arena; '=': touched as planned, to the byte.", "",
             "| | Adjoint's stack | planned bytes | foretold ms | touched | GiB | ms | PyTorch GiB | PyTorch ms |",
             "|---|---|---|---|---|---|---|---|---|"]
    lines += ["| " + " | ".join(cells(row, result["device"])) + " |" for row in result["rows"]]
    failures = [(row["name"], side, row[side]["failed"]) for row in result["rows"] for side in ("plan", "adjoint", "torch")
                if row[side] and "failed" in row[side]]
    if failures:
        # The command is in walk.json; here what it said.
        lines += ["", *(f"- {name}, {side}: {why.rpartition('adjoint: ')[2]}" for name, side, why in failures)]
    return "\n".join(lines) + "\n"


def walk(a):
    rows = [row for i, row in enumerate(all_rows(a), 1) if not a.rows or i in a.rows]
    plans = plans_of(a, rows)
    result = {"title": f"{' '.join([a.model, *a.settings])}, batch {a.batch}, {a.device}, medians of {a.steps} steps",
              "device": a.device, "sheet": a.sheet, "rows": []}
    for i, row in enumerate(rows, 1):
        planned = plans[row.name]
        done = {"name": row.name, "stack": row.stack, "plan": planned, "adjoint": None, "torch": None}
        result["rows"].append(done)
        if a.plan_only:
            continue
        where = f"{i} of {len(rows)}: {row.name}"
        if not (row.fit and "failed" in planned):
            done["adjoint"] = attempt(f"{where}: adjoint",
                                      lambda: adjoint_step(a, planned.get("stack", row.stack)))
        if row.torch is not None and not a.no_torch:
            done["torch"] = attempt(f"{where}: torch", lambda: torch_step(a, row))
        (a.out / "walk.md").write_text(table(result))
        (a.out / "walk.json").write_text(json.dumps(result, indent=1) + "\n")
    return result


def sizes(text):
    return [size for size in text.split(",") if size]


def arguments():
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Rows:\n" + "\n".join(f"  {i}  {row.name}" for i, row in enumerate(WALK, 1)) + "\n  and the budgets\n"
        "Examples:\n  bench/gpu_walk.py --plan-only --out build/walk\n"
        "  bench/gpu_walk.py --plans build/walk/walk_plans.json\n"
        "  bench/gpu_walk.py --device cpu --model ref --batch 4 --fits 120MB --bf16-fits '' --eager")
    root = compare.HERE.parent
    args.add_argument("--adjoint", type=pathlib.Path, default=root / "build/release/adjoint", help="the binary")
    args.add_argument("--model", default="gpt2")
    args.add_argument("--set", nargs="*", default=[], dest="settings", help="settings of the model, such as layers=2")
    args.add_argument("--batch", type=int, default=32)
    args.add_argument("--context", type=int, default=0, help="0: the model's")
    args.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    args.add_argument("--sheet", help="whose times are foretold; h200 for cuda, cpu for cpu")
    args.add_argument("--threads", type=int, default=16)
    args.add_argument("--steps", type=int, default=5)
    args.add_argument("--fits", type=sizes, default=["12GB", "6GB", "5GB"], help="budgets, joined by commas")
    args.add_argument("--bf16-fits", type=sizes, default=["6GB", "3GB"], help="budgets where bf16 may be chosen")
    args.add_argument("--rows", default="", help="only these, by number: 1,3,6")
    args.add_argument("--eager", action="store_true", help="PyTorch without torch.compile in all rows")
    args.add_argument("--no-torch", action="store_true", help="Adjoint alone")
    args.add_argument("--plan-only", action="store_true", help="nothing runs")
    args.add_argument("--plans", type=pathlib.Path, help="a walk_plans.json of the same step")
    args.add_argument("--patience", type=int, default=300, help="seconds for one command")
    args.add_argument("--python", default=sys.executable, help="the interpreter that has PyTorch")
    args.add_argument("--out", type=pathlib.Path, default=root / "build/bench", help="folder for the tables")
    a = args.parse_args()
    a.sheet = a.sheet or ("h200" if a.device == "cuda" else "cpu")
    a.adjoint = a.adjoint.resolve()
    try:
        a.rows = {int(number) for number in a.rows.split(",") if number}
    except ValueError as error:
        raise Failed(f"--rows: wanted numbers such as 1,3,6, found '{a.rows}'") from error
    if a.rows - set(range(1, len(all_rows(a)) + 1)):
        raise Failed(f"--rows: there are {len(all_rows(a))}")
    compare.make_folder(a.out)
    return a


def main():
    try:
        result = walk(arguments())
    except Failed as why:
        say(f"gpu_walk: {why}")
        return 1
    except KeyboardInterrupt:
        say("gpu_walk: interrupted; what was measured is in the folder")
        return 130
    print(table(result), end="")
    sides = [row[side] for row in result["rows"] for side in ("adjoint", "torch") if row[side]]
    return 1 if any("failed" in side for side in sides) else 0  # a budget that is refused is an answer


if __name__ == "__main__":
    sys.exit(main())
