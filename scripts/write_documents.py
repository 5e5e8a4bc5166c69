#!/usr/bin/env python3
"""Makes every figure and number of the documents that any machine can make, and says which are stale.

    scripts/write_documents.py build/release/adjoint            writes regions and figures that changed, with today's date
    scripts/write_documents.py build/release/adjoint --check    writes nothing; exits 1 where one is stale
    scripts/write_documents.py build/release/adjoint --check --quick    what takes a few seconds
    scripts/write_documents.py build/release/adjoint --only speed,walk_gpt2

A region of a page is made by the function below that has its name. Some are compared exactly; where the processor has a say
(workspaces of oneDNN, rounding), numbers are compared within 3% or one in the last digit. What was measured on machines that
are not here carries machine, date and command in a line `Measured: MACHINE, DATE, COMMAND`; a table of numbers that has neither
is an error. `--slow` includes what takes minutes: the matrix of what composes, the Pareto curve and the trained model of README.md.
`--figures` draws also what wants the test programs, the history of git and a browser (scripts/document_figures.py).
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import document_figures
import documents
from documents import ROOT

GIB = 2**30
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?")
PROGRESS = re.compile(r"adjoint: .*\d+s\b")  # a line that only a slow machine prints
# Scripts that write between markers of their own.
SCRIPTS = {"docs/rank_accounts.md": ["write_tensor_table.py", "write_zero_table.py"]}
# Tables of numbers that a test recomputes, by page: the test.
TESTED = {
    "docs/schedules.md": "tests/schedules/document_test.cpp, tests/report/memory_states_test.cpp",
    "docs/rank_accounts.md": "tests/report/activation_terms_test.cpp; the scripts above",
    "docs/composition.md": "tests/long/composition_matrix_test.cpp",
    "docs/json.md": "tests/cli",
}
# Texts of README's sessions.
BOOKS = {"book.txt": "Gen1:1-Gen50:26", "mine.txt": "Psa1:1-Psa41:13"}


class Maker:
    """Runs the program, in a folder with the texts and files of README.md."""

    def __init__(self, adjoint: str, folder: pathlib.Path) -> None:
        self.adjoint, self.folder = str(pathlib.Path(adjoint).resolve()), folder
        # What this machine has measured (the cache of products) must not change what is predicted for another.
        self.environment = dict(os.environ, PATH=f"{pathlib.Path(self.adjoint).parent}:{os.environ['PATH']}",
                                XDG_CACHE_HOME=str(folder / "cache"), OMP_WAIT_POLICY="passive")
        for name, contents in documents.files(ROOT / "README.md"):
            (folder / name).write_text(contents)

    def books(self) -> None:
        for name, verses in BOOKS.items():
            said = subprocess.run(["bible", "-f", verses], stdout=subprocess.PIPE, text=True, check=True).stdout
            (self.folder / name).write_text(re.sub(r"^\S+ ", "", said, flags=re.M))

    def run(self, command: str) -> list[str]:
        """What a command prints, both streams, line by line; it may fail, as a lie does."""
        ended = subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if ended.returncode not in (0, 1):
            raise SystemExit(f"write_documents: {command}\n{ended.stdout}")
        return [line for line in ended.stdout.splitlines() if not PROGRESS.match(line)]

    def plan(self, *arguments: str) -> dict:
        out = subprocess.run([self.adjoint, "plan", *arguments, "--json"], check=True, capture_output=True, text=True, env=self.environment)
        return json.loads(out.stdout)


def session(maker: Maker, *steps: tuple[str, str]) -> str:
    """Commands, each with those lines of its output that match; what is left out is three dots."""
    out = []
    for command, pattern in steps:
        out.append("$ " + command)
        dots = False
        for line in maker.run(command):
            found = re.search(pattern, line)
            if found:
                line = found[1] if found.groups() and found[1] else line
                out += (["..."] if dots else []) + [line.rstrip()]
                dots = False
            else:
                dots = True
    return "```\n" + "\n".join(out) + "\n```\n"


def table(head: list[str], rows: list[list[str]]) -> str:
    return "".join("| " + " | ".join(row) + " |\n" for row in [head, ["---"] * len(head), *rows]).replace("| --- ", "|---").replace("|--- |", "|---|")


def code(stack: str) -> str:
    return "`" + stack.replace("|", "\\|") + "`"


# --- README.md

def lie(maker: Maker) -> str:
    return session(maker, ("adjoint verify --model char --stack free_lunch.functor", r"^functor|^free_lunch|^verify:"))


def bytes_(maker: Maker) -> str:
    out = session(maker, ("adjoint plan --model char --batch 12 --threads 2 --measure", r"^memory at|^para.* MiB|^gradients|^optimizer|^activ|^peak"))
    peaks = re.findall(r"^peak .* ([\d,]+)$", out, re.M)
    if len(peaks) != 2 or peaks[0] != peaks[1]:
        raise SystemExit(f"write_documents: predicted and measured bytes differ: {peaks}")
    return out


def method(maker: Maker) -> str:
    maker.books()
    out = session(
        maker,
        ("adjoint train --model char --data book.txt --tokenizer byte --steps 400 --lr 2e-3 --batch 8 --out runs/base", r"^(step    400.*?val \S+)"),
        ("adjoint eval --model runs/base --data mine.txt", r"^.*loss"),
        ("adjoint train --init runs/base --data mine.txt --stack vera.functor --steps 200 --lr 1e-2 --batch 8 --out runs/tuned", r"trained;|^(step    200.*?val \S+)"),
        ("adjoint eval --model runs/tuned --data mine.txt", r"^.*loss"),
        ("adjoint verify --model char --stack 'vera.functor | bf16'", r"^functor|^vera|^bf16|^the stack"))
    before, after = re.findall(r"^step \d+: loss ([\d.]+)", out, re.M)
    trained = re.search(r"([\d,]+) of them trained", out)[1]
    texts = "".join(f"bible -f {verses} | sed 's/^[^ ]* //' > {name}\n" for name, verses in BOOKS.items())
    return ("Any two texts will do; here they are Genesis and psalms 1 to 41, of Debian's package bible-kjv:\n\n"
            f"```sh\n{texts}```\n\n{trained} trained numbers take the loss of the psalms from {float(before):.2f} to {float(after):.2f}:\n\n" + out)


def rows_of(page: str, title: str) -> list[list[str]]:
    """The cells of the first table of a section."""
    text = (ROOT / page).read_text()
    section = text[text.index("\n" + title):]
    found = re.search(r"^\|.*\n\|[-|]+\n((?:\|.*\n)+)", section, re.M)
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in found[1].splitlines()]


def measured(page: str, title: str) -> tuple[str, str]:
    """The day, and PyTorch with its version, that the `Measured:` lines of a section say."""
    text = (ROOT / page).read_text()
    said = re.search(r"^Measured: (?:.+\n)+", text[text.index("\n" + title):], re.M)[0]
    return re.search(r"\d{4}-\d\d-\d\d", said)[0], re.search(r"PyTorch \d[\d.]*\d", said)[0]


def speed(maker: Maker) -> str:
    """README's table is taken from the pages that have the measurements, so that there is one source."""
    rows = []
    (day, torch), (gpu_day, gpu_torch) = measured("docs/performance.md", "## Whole steps"), measured("docs/gpu.md", "## Measured on one H200")
    days = day if day == gpu_day else f"{day} (CPU) and {gpu_day} (GPU)"
    for row in rows_of("docs/performance.md", "## Whole steps beside PyTorch"):
        peer = re.search(r"\((\w+)\)", row[4])[1]
        share = row[10] or "not kept"
        rows.append([f"{row[0]}, {row[1]}", f"a Xeon, {row[2]} threads", f"{row[3]} ms", f"{torch} {peer}", row[5], share])
    gpu = (ROOT / "docs/gpu.md").read_text()
    for row in rows_of("docs/gpu.md", "Beside PyTorch "):
        assert gpu.count("| " + row[0] + " |")
        rows.append([row[0] + ", bf16", "one H200", row[1].split(",")[0], gpu_torch + " compiled", row[3], row[4]])
    xeon = re.search(r"Intel Xeon \([^)]*\), [^,]*", (ROOT / "docs/performance.md").read_text())[0]
    return table(["step", "on", "takes", "beside", "times as fast", "of PyTorch's memory"], rows) + (
        f"\nMeasured on {days}. The Xeon is an {xeon}.\n[docs/performance.md](docs/performance.md) (CPU) and [docs/gpu.md](docs/gpu.md) have the commands, the spread, where the time\n"
        "goes, and what misses its goal: Llama on a CPU was to be 1.3 times as fast.\n")


# --- docs/memory.md

WALK_GPT2 = ["-recompute_cheap", "", "recompute_cheap(within=1)", "accumulate(4)", "accumulate(4) | checkpoint(block)",
             "accumulate(4) | checkpoint(block) | chunk_readout(1024)", "checkpoint(block)", "bf16 | -recompute_cheap", "bf16",
             "bf16 | recompute_cheap(within=1)", "bf16 | checkpoint(block)", "bf16 | accumulate(4) | checkpoint(block)"]
WALK_REF = ["-recompute_cheap", "", "recompute_cheap(within=1)", "accumulate(4)", "accumulate(4) | checkpoint(block)",
            "checkpoint(block)", "bf16", "bf16 | accumulate(4) | checkpoint(block)"]


def stack_name(stack: str) -> str:
    return code(stack) if stack else "as it comes"


def walk_gpt2(maker: Maker) -> str:
    rows = []
    for stack in WALK_GPT2:
        plan = maker.plan("--model", "gpt2", "--batch", "32", "--device", "h200", "--stack", stack)
        rows.append([stack_name(stack), f"{plan['peak_bytes']:,}", f"{plan['peak_bytes'] / GIB:.2f}", f"{plan['step_s'] * 1e3:.3g}"])
    return table(["`gpt2`, batch 32 x 1024, for an H200", "planned bytes", "GiB", "predicted ms"], rows)


def walk_ref(maker: Maker) -> str:
    rows = []
    for stack in WALK_REF:
        plan = maker.plan("--model", "ref", "--batch", "32", "--threads", "16", "--stack", stack)
        rows.append([stack_name(stack), f"{plan['peak_bytes']:,}", f"{plan['peak_bytes'] / GIB:.2f}"])
    return table(["`ref`, batch 32 x 512, 16 threads", "planned bytes", "GiB"], rows)


def formulas(maker: Maker) -> str:
    """The activations of an inner block, beside 2sbh(34 + 5as/h) bytes in float32."""
    rows = []
    for model, b, s, h, a in (("ref", 32, 512, 256, 4), ("gpt2", 32, 1024, 768, 12)):
        cells = [f"`{model}`, b={b} s={s} h={h} a={a}", f"{2 * s * b * h * (34 + 5 * a * s / h) / 2**20:,.0f} MiB"]
        for stack in ("-recompute_cheap", "recompute_cheap(within=1)"):
            plan = maker.plan("--model", model, "--batch", str(b), "--device", "h200", "--by", "block", "--stack", stack)
            block = next(row for row in plan["by"] if row["block"] == "block[1]")
            cells.append(f"{block['categories']['activations'] / 2**20:,.0f} MiB")
        rows.append([*cells, f"{4 * b * s * h / 2**20:,.0f} MiB"])
    return table(["", "the formula", "everything kept", "`recompute_cheap(within=1)`", "`checkpoint(block)`: its state"], rows)


def states(maker: Maker) -> str:
    def told(stack: str) -> tuple[dict, float, float]:
        plan = maker.plan("--model", "gpt2-xl", "--device", "h200", "--stack", stack)
        held = sum(plan["categories"][name] for name in ("parameters", "optimizer_state", "gradients"))
        return plan, held / 1e9, held / plan["params"]
    plan, held, each = told("bf16")
    _, less, fewer = told("bf16(gradients=bf16)")
    parts = plan["categories"]
    return (f"`adjoint plan --model gpt2-xl --stack bf16 --device h200` at batch 1: parameters {parts['parameters'] / 1e9:.2f} GB, moments "
            f"{parts['optimizer_state'] / 1e9:.2f} GB,\ngradients {parts['gradients'] / 1e9:.2f} GB at the peak, {held:.1f} GB for {plan['params'] / 1e9:.3f} B "
            f"parameters: {each:.1f} bytes each. With gradients in 16 bits\n(`bf16(gradients=bf16)`) {less:.1f} GB: {fewer:.1f} bytes each.\n")


# --- docs/composition.md

def frozen16(maker: Maker) -> str:
    lines = []
    for stack in ("lora(8) | bf16(frozen=f32) | checkpoint(block)", "lora(8) | bf16 | checkpoint(block)"):
        arguments = ["--model", "llama3-8b", "--batch", "1", "--context", "2048", "--device", "rtx4090"]
        plan = maker.plan(*arguments, "--stack", stack)
        command = f'adjoint plan {" ".join(arguments)} --stack "{stack}"'
        lines.append(f"{command:<133} # {plan['peak_bytes'] / GIB:.1f} GiB\n")
    return "```sh\n" + "".join(lines) + "```\n"


def characters(maker: Maker) -> str:
    def ours(name: str) -> str:
        text = (ROOT / "functors" / f"{name}.functor").read_text()
        return f"`functors/{name}.functor`, {len(text.splitlines())} lines, {len(text):,}"
    return table(["optimization", "here", "elsewhere"], [
        ["LoRA", ours("lora"), "peft `tuners/lora/layer.py` 101,594, and `model.py` 34,612"],
        ["recomputation", ours("checkpoint"),
         "torchtitan `distributed/activation_checkpoint.py` 13,195, on PyTorch's `torch/utils/checkpoint.py` 78,700"],
        ["accumulation", ours("accumulate"), "a loop and a division in every training script; the reports behind T1 are about it"],
        ["loss scaling", f"`src/functors/fp16.cpp`, {len((ROOT / 'src/functors/fp16.cpp').read_text()):,}", "PyTorch `amp/grad_scaler.py` 31,056"],
    ])


# --- ARCHITECTURE.md

def flat(maker: Maker) -> str:
    line = next(line for line in maker.run("adjoint show --model char") if "= linear(" in line)
    return "```\n" + line + "\n```\n"


def families(maker: Maker) -> str:
    """The families of Hugging Face's format that come along, and their presets."""
    rows = []
    for text in sorted((ROOT / "models").glob("*.scheme")):
        said = text.read_text()
        formats = re.findall(r'^format huggingface "(\w+)":', said, flags=re.M)
        presets = re.findall(r"^preset ([^:\s]+):", said, flags=re.M)
        if formats:
            rows.append([code(text.stem), ", ".join(code(name) for name in formats), ", ".join(code(name) for name in presets)])
    return table(["text", "`architectures`", "presets with its sizes"], rows)


# name -> page, function, how it is compared
REGIONS = {
    "lie": ("README.md", lie, "near"),
    "bytes": ("README.md", bytes_, "near"),
    "method": ("README.md", method, "slow"),
    "speed": ("README.md", speed, "exact"),
    "families": ("docs/notation.md", families, "exact"),
    "walk_ref": ("docs/memory.md", walk_ref, "near"),
    "walk_gpt2": ("docs/memory.md", walk_gpt2, "exact"),
    "formulas": ("docs/memory.md", formulas, "exact"),
    "states": ("docs/memory.md", states, "exact"),
    "frozen16": ("docs/composition.md", frozen16, "near"),
    "characters": ("docs/composition.md", characters, "exact"),
    "flat": ("ARCHITECTURE.md", flat, "exact"),
}

QUICK = {"speed", "characters", "families", "flat", "formulas"}


# Bytes that follow from the model's text alone.
EXACT_LINES = re.compile(r"(parameters|optimizer state) ")


def close(old: str, new: str) -> bool:
    """Two numbers as they are printed: within 3%, or one in the last digit behind the point."""
    a, b = (float(number.replace(",", "")) for number in (old, new))
    digits, _, power = old.partition("e")
    last = 10.0 ** (int(power or 0) - len(digits.partition(".")[2])) if "." in old or power else 0
    return abs(a - b) <= max(0.03 * max(abs(a), abs(b)), 1.001 * last)


def same_line(old: str, new: str, how: str) -> bool:
    if " ".join(NUMBER.sub("#", old).split()) != " ".join(NUMBER.sub("#", new).split()):
        return False
    if EXACT_LINES.match(old):
        return old.split() == new.split()
    if how == "slow" and "loss" not in old:  # errors of a trained model: their bound is in the line, and `ok` behind it
        return True
    return all(close(a, b) for a, b in zip(NUMBER.findall(old), NUMBER.findall(new)))


def same(old: str, new: str, how: str) -> bool:
    if how == "exact":
        return old == new
    lines = old.splitlines(), new.splitlines()
    return len(lines[0]) == len(lines[1]) and all(same_line(a, b, how) for a, b in zip(*lines))


def check_measured() -> list[str]:
    """Tables of numbers are made by a function here, recomputed by a test, or say where and when they were measured, and how."""
    wrong = []
    for page in documents.pages():
        name, text = documents.name_of(page), page.read_text()
        for line in re.findall(r"^Measured: .*", text, re.M):
            if not re.match(r"Measured: [^,]+.*\d{4}-\d\d-\d\d.*", line):
                wrong.append(f"{name}: '{line[:60]}' says no machine or no date")
        if name in TESTED:
            continue
        outside = documents.REGION.sub(lambda found: "\n" * found[0].count("\n"), text)
        for section in re.split(r"^(?=## )", outside, flags=re.M):
            rows = re.findall(r"^\|.*\d.*\|$", section, re.M)
            figures = sum(len(re.findall(r"\|\s*(?:\*\*)?[\d.,]+(?:e-\d+)?(?:\*\*)?(?: \S+)?\s*(?=\|)", row)) for row in rows)
            if figures < 6:
                continue
            said = re.search(r"^(?:Measured:|Compared on) ((?:.+\n)+)", section, re.M)
            title = section.splitlines()[0]
            if not said:
                wrong.append(f"{name}: '{title}' has a table of {figures} numbers and no line 'Measured: MACHINE, DATE, COMMAND'")
            elif not re.search(r"\d{4}-\d\d-\d\d", said[1]) or "`" not in said[1]:
                wrong.append(f"{name}: what was measured in '{title}' has no date or no command")
    return wrong


def check_index() -> list[str]:
    index = (ROOT / "docs/README.md").read_text()
    wrong = [f"docs/README.md does not list {page.name}" for page in sorted((ROOT / "docs").glob("*.md"))
             if page.name != "README.md" and f"]({page.name}" not in index]
    for page in documents.pages():
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", documents.FENCE.sub("", page.read_text())):
            if not (page.parent / target).exists():
                wrong.append(f"{documents.name_of(page)} links to {target}, which is not there")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adjoint")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--figures", action="store_true")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    only = set(filter(None, arguments.only.split(",")))
    if only - set(REGIONS):
        print(f"write_documents: there is no region '{', '.join(sorted(only - set(REGIONS)))}', only {', '.join(REGIONS)}")
        return 2
    stale, today = [], datetime.date.today().isoformat()
    with tempfile.TemporaryDirectory(prefix="documents-") as folder:
        maker = Maker(arguments.adjoint, pathlib.Path(folder))
        for name, (page, make, how) in REGIONS.items():
            if (only and name not in only) or (how == "slow" and not arguments.slow and not only) or (arguments.quick and name not in QUICK):
                continue
            text = (ROOT / page).read_text()
            found = next((region for region in documents.REGION.finditer(text) if region[1] == name), None)
            if not found:
                stale.append(f"{page} has no region '{name}'")
                continue
            new = make(maker)
            if found[3] and same(found[3], new, how):
                continue
            stale.append(f"{page}: '{name}' of {found[2]} is stale")
            if not arguments.check:
                region = f"<!-- made by scripts/write_documents.py: {name}, {today} -->\n{new}<!-- end -->"
                documents.write(ROOT / page, text[:found.start()] + region + text[found.end():])
        for page, scripts in SCRIPTS.items() if not only and not arguments.quick else ():
            for script in scripts:
                ended = subprocess.run([ROOT / "scripts" / script, maker.adjoint] + ["--check"] * arguments.check,
                                       stdout=subprocess.DEVNULL, check=False)
                stale += [f"{page}: the table of scripts/{script} is stale"] * bool(ended.returncode)
        if arguments.slow and not arguments.check and not only:
            subprocess.run([ROOT / "scripts/write_matrix.py", maker.adjoint], check=True)
        if not only and not arguments.quick:
            stale += document_figures.stale_figures(maker, arguments.check, arguments.slow, arguments.figures)
        wrong = [] if only else check_measured() + check_index() + document_figures.check_rooms() + document_figures.check_captions()
    for line in stale + wrong:
        print(line if arguments.check or line in wrong else line + "; written anew")
    return int(bool(wrong) or bool(stale and arguments.check))


if __name__ == "__main__":
    sys.exit(main())
