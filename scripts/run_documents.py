#!/usr/bin/env python3
"""Runs the commands that README.md and docs/ show, so that no document has one that does not work.

    scripts/run_documents.py build/release/adjoint            every command
    scripts/run_documents.py build/release/adjoint --quick    names, flags and files of all; runs a few pages
    scripts/run_documents.py build/release/adjoint --only tutorial.md

Every page has a folder of its own, in which its commands run in order, as bash takes them. In that folder `adjoint` is a stand-in
that makes a command small (`shrink` below says how) and then runs the real one: two steps instead of thousands, narrow models
where a wide one would run, the CPU for a GPU, ranks as threads for those of mpirun. What is only planned is planned as it stands.
A command is run, or `EXCEPTIONS` says why not; even then its flags must exist.
"""
import argparse
import os
import pathlib
import re
import string
import subprocess
import sys
import tempfile
import time

import documents

HERE = pathlib.Path(__file__).resolve()
LIMIT = 300  # seconds of one command, on a machine that others use

# Pages that other tests hold to the program word by word.
HELD_ELSEWHERE = {"docs/mistakes.md": "cli_test"}

# Commands that are not run, by a pattern over the whole command, and why.
EXCEPTIONS = [
    (r"^(sudo )?make\b", "builds, tests or installs: only the target is looked up"),
    (r"^(ninja|ctest)\b", "is a part of the build or of the tests itself"),
    (r"^bench/", "wants PyTorch, and most of it an H200"),
    (r"^scripts/(compare_tokenizers|tokenizer_speed|reference_models)", "wants packages of npm or of Python that are not Debian's"),
    (r"^scripts/write_documents", "writes pages; ctest's documents.write_documents runs it with --check"),
    (r"^scripts/write_mistakes", "writes a page; `make check` runs it with --check"),
    (r"^scripts/write_(tensor|zero)_table", "writes a table; write_documents.py runs it"),
    (r"^scripts/write_figures", "writes figures; write_documents.py draws the same"),
    (r"^scripts/write_matrix", "writes a table, which long.CompositionMatrix compares"),
    (r"^scripts/write_studio_pictures", "writes pictures in a browser; write_documents.py --figures runs it"),
    (r"^scripts/draw_rooms", "wants the history of git; write_documents.py --figures runs it"),
    (r"^scripts/run_documents", "is this script"),
    (r"^scripts/test_page", "ctest's studio.browser.* run it"),
    (r"^scripts/tidy", "wants clang-tidy; CI runs it: make tidy"),
    (r"^scripts/check_deb", "wants root, a network and packages; it is run by hand after make deb"),
    (r"^tests/fuzz/", "runs under libFuzzer: make fuzz"),
    (r"^python3 -c", "wants numpy and safetensors"),
    (r"student", "wants logits of a teacher model, which the line before makes with numpy; tests/train feeds such fields"),
    (r"^(build/release/)?adjoint studio\b", "serves until it is ended; studio_test runs it"),
    (r"^adjoint launch\b|^mpirun .*pipeline\(2.*tensor_parallel", "starts eight processes, or restarts them: kill.ranks and long.* do"),
    (r"^adjoint verify --matrix", "takes minutes: long.CompositionMatrix"),
    (r"gpt2-folder|freshly downloaded", "wants a folder of Hugging Face's hub; docs/finetune.md goes the same way with one of its own"),
    (r"^adjoint train --model gpt2 --data book.txt --tokenizer path/", "names no file; docs/tokenizers.md has the same with one"),
]

# Commands that a document shows because they are refused.
REFUSED = [r"free_lunch", r"freeze\(router\)", r"every=20", r"bf16 \| fp16", r"--batch 4 --stack \"accumulate\(8\)", r"pipeline\(3\) \| checkpoint"]

# What must stand in a page's folder before its first command, beside texts. Every page has these texts of a few kilobytes.
TEXTS = ["book.txt", "mine.txt", "verses.txt", "tinyshakespeare.txt", "books/one.txt", "test/one.txt"]
BASE = "adjoint train --model char --data book.txt --tokenizer byte --out runs/base && cp -r runs/base runs/book"
BEFORE = {
    "README.md": "true",
    "docs/data.md": BASE + " && gzip -k books/one.txt && zstd -q web.jsonl",
    "docs/notation.md": BASE + " && adjoint show --model gpt2 --text > my.scheme",
    "docs/finetune.md": "true",
    "docs/add_a_functor.md": "adjoint train --model char --data book.txt --stack ema --out runs/mine",
    "docs/edit.md": "adjoint show --model gpt2 --text > my.scheme",
    "docs/gpu.md": "adjoint show --model gpt2 --text > my.scheme",
}
# Inline commands that leave out what their sentence has said.
COMPLETED = {
    "adjoint generate --weights ema.average": "adjoint generate --weights ema.average --model runs/mine",
    "adjoint plan --by block": "adjoint plan --model gpt2 --by block",
    "adjoint show --text": "adjoint show --model gpt2 --text",
    "adjoint show --memory-states": "adjoint show --model char --memory-states",
    "adjoint show --json": "adjoint show --model char --json",
    "adjoint quantize --run runs/book --out runs/book4": "rm -rf runs/book4 && adjoint quantize --run runs/book --out runs/book4",
}
# Words of a command that stand for others: a form and not a command. Flags are looked up all the same.
FORM = re.compile(r"\.\.\.|--write-schedule$|\bTOPIC\b|\bFOLDER\b|\bFILE\b|\bSHELL\b|\bWORD\b|=N\)|-n N\b|--model M\b|-n R\b|--ranks R\b|\[folder\]|followed\.average")
UNLISTED = {"complete"}  # commands that --help does not list: what shells ask
QUICK = ["README.md", "docs/tutorial.md", "docs/tokenizers.md"]
SLOW = re.compile(r"\bverify\b|--fit\b|--measure\b|\bbench\b")  # left out of --quick, which is a part of `make test`
NARROW = {"layers": "4", "hidden": "128", "heads": "4", "ffn": "256"}  # as narrow as groups of 128 codes allow


def flag(arguments: list[str], name: str) -> str | None:
    """The value that a flag has, or nothing."""
    for i, word in enumerate(arguments):
        if word == name and i + 1 < len(arguments):
            return arguments[i + 1]
    return None


def put(arguments: list[str], name: str, value: str) -> None:
    if name in arguments:
        arguments[arguments.index(name) + 1] = value
    else:
        arguments += [name, value]


def drop(arguments: list[str], name: str) -> None:
    if name in arguments:
        at = arguments.index(name)
        del arguments[at:at + 2]


def narrow(arguments: list[str]) -> None:
    """A model of GPT-2's or Llama's family is made narrow, in what the command itself does not set."""
    model = flag(arguments, "--model") or ("gpt2" if arguments[0] in ("plan", "profile") else "ref" if arguments[0] == "bench" else "char")
    text = pathlib.Path(model).read_text() if model.endswith(".scheme") and os.path.exists(model) else ""
    llama = re.fullmatch(r"llama\d.*", model)
    if not llama and not re.fullmatch(r"gpt2.*|gpt3.*|ref|char", model) and "hidden=768" not in text:
        return
    said = arguments[arguments.index("--set") + 1:] if "--set" in arguments else []
    said = {word.split("=")[0] for word in said if re.match(r"\w+=", word)}
    sizes = [f"{name}={value}" for name, value in NARROW.items() if name not in said]
    if arguments[0] in ("profile", "bench") or "--measure" in arguments:  # a run takes as many tokens as its text has
        sizes.append("vocab=256")
    sizes += ["kv_heads=2"] if llama else []
    at = arguments.index("--set") + 1 if "--set" in arguments else len(arguments)
    arguments[at:at] = sizes if "--set" in arguments else ["--set", *sizes]


def shrink(arguments: list[str]) -> list[str]:
    """The same command, small: it takes the same paths through the program in a few seconds."""
    arguments = list(arguments)
    if not arguments:
        return arguments
    command = arguments[0]
    if flag(arguments, "--device") == "cuda":
        drop(arguments, "--device")
    runs = command in ("train", "profile", "bench") or "--measure" in arguments
    if runs and "--help" not in arguments:
        if not {"--resume", "--repeat", "--init"} & set(arguments):
            narrow(arguments)
        if command != "bench" or arguments[1] not in ("sweep", "comm"):
            if "--measure" not in arguments:
                resumed = "--resume" in arguments or "--config" in arguments
                put(arguments, "--steps", "4" if resumed else "2" if command == "train" else "1")
        if command == "bench" and arguments[1] in ("step", "ops", "sweep", "tokens", "ranks"):
            for name, values in (("--contexts", "16,32"), ("--batches", "2,4")):
                if name in arguments:
                    put(arguments, name, values)
            if arguments[1] == "ranks":
                put(arguments, "--rounds", "1")
        if command == "profile" or "--measure" in arguments or arguments[:2] in (["bench", "step"], ["bench", "ops"], ["bench", "ranks"]):
            put(arguments, "--seq", "32")
            if arguments[:2] == ["bench", "ops"]:
                put(arguments, "--batch", "2")
        drop(arguments, "--epochs")
        if flag(arguments, "--model") in (None, "gpt2", "ref") and command == "train" and "--seq" not in arguments \
                and not {"--resume", "--repeat", "--init", "--config"} & set(arguments):
            put(arguments, "--seq", "32")
        if "--repeat" not in arguments:
            put(arguments, "--threads", "1")
        if command == "train" and "--out" in arguments and "--resume" not in arguments:
            arguments.append("--overwrite")
    if command == "verify":
        put(arguments, "--seeds", "1")
        put(arguments, "--threads", "1")
    if command == "generate":
        put(arguments, "--tokens", "8")
    if command == "plan" and ("--pareto" in arguments or "--fit" in arguments):
        narrow(arguments)
    return arguments


def stand_in(program: str, arguments: list[str]) -> int:
    """What runs as `adjoint` or `mpirun` in a page's folder."""
    real = os.environ["DOCUMENTS_ADJOINT"]
    if program == "mpirun":
        ranks = flag(arguments, "-n") or "2"
        arguments = arguments[arguments.index("adjoint") + 1:]
        if arguments[0] == "train" or arguments[:2] == ["bench", "ranks"]:
            put(arguments, "--ranks", ranks)
    small = shrink(arguments)
    if small != arguments:
        print("as: adjoint " + " ".join(small), file=sys.stderr, flush=True)
    os.execv(real, [real, *small])


def fill(folder: pathlib.Path, page: pathlib.Path) -> None:
    """The files that a page speaks of: texts, lines of JSON, and what it tells its reader to save."""
    lines = [f"In the beginning was line {i}, and line {i} was followed by the next; ask not why, for {'abcdefgh'[i % 8]} knows.\n" for i in range(150)]
    for name in TEXTS:
        path = folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(string.printable[:95] + "\n" + "".join(lines))
    talk = '{"messages": [{"role": "user", "content": "Who is %d?"}, {"role": "assistant", "content": "A line, and %d its number."}]}\n'
    (folder / "talks.jsonl").write_text("".join(talk % (i, i) for i in range(60)))
    (folder / "web.jsonl").write_text("".join('{"text": "Line %d of the web, which is as long as it is."}\n' % i for i in range(200)))
    (folder / "questions.jsonl").write_text('{"prompt": "Line 1 was followed by", "choices": [" the next", " none"], "answer": 0}\n')
    for other in [*documents.pages(), page]:  # a file that another page shows will do, and the page's own is better
        for name, contents in documents.files(other):
            (folder / name).write_text(contents)
    for name in ("scripts", "bench", "tests"):
        (folder / name).symlink_to(documents.ROOT / name)
    for program in ("adjoint", "mpirun"):
        shim = folder / ".bin" / program
        shim.parent.mkdir(exist_ok=True)
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE}" --stand-in {program} "$@"\n')
        shim.chmod(0o755)
    (folder / "build/release").mkdir(parents=True)
    (folder / "build/release/adjoint").symlink_to(folder / ".bin/adjoint")


class Binary:
    """What the program says of itself: its commands, and their flags."""

    def __init__(self, path: str) -> None:
        self.path, self.known = path, {}

    def help(self, *command: str) -> str:
        if command not in self.known:
            run = subprocess.run([self.path, *command, "--help"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
            self.known[command] = run.stdout if run.returncode == 0 else ""
        return self.known[command]

    def subcommands(self, *command: str) -> list[str]:
        listed = re.search(r"^Subcommands:\n((?:  .*\n)+)", self.help(*command), re.M)
        return re.findall(r"^  (\S+)", listed[1], re.M) if listed else []

    def flags(self, *command: str) -> set[str]:
        return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", self.help(*command)))

    def all_flags(self) -> set[str]:
        out = {"--inside", "--read-only", "--drafts"}  # what the studio puts before a command (src/cli/view_flags.h)
        for first in self.subcommands():
            out |= self.flags(first)
            for second in self.subcommands(first):
                out |= self.flags(first, second)
        return out


def wrong_flags(binary: Binary, command: documents.Command) -> list[str]:
    """What a command names that the program, the Makefile or a script does not have."""
    out, words = [], documents.words(command.text)
    if words[0].startswith("--"):  # a flag in a sentence: some command has it, or a tool of others that the sentence names
        name = words[0].split("=")[0]
        known = binary.all_flags() | {"--eager", "--bind-to", "--map-by", "--hostfile", "--tool"}
        scripts = "".join(path.read_text() for folder in ("bench", "scripts") for path in (documents.ROOT / folder).glob("*.[ps][yh]"))
        return [] if name in known or f'"{name}"' in scripts else [f"no command has the flag {name}"]
    if "make" in words[:2]:
        text = (documents.ROOT / "Makefile").read_text()
        targets = set(re.sub(r"\\\n", " ", "\n".join(re.findall(r"^\.PHONY:(.*(?:\\\n.*)*)", text, re.M))).split())
        targets |= {name for names in re.findall(r"^([\w -]+):(?!=)", text, re.M) for name in names.split()}
        return [f"the Makefile has no target '{word}'" for word in words[words.index("make") + 1:]
                if re.fullmatch(r"[a-z][\w-]*", word) and word not in targets and word not in ("sudo", "apt", "make")]
    if re.match(r"(bench|scripts|tests)/", words[0]):
        path = documents.ROOT / words[0]
        if not path.exists():
            return [f"there is no {words[0]}"]
        text = path.read_text()
        return [f"{words[0]} does not have {word}" for word in words if word.startswith("--") and word not in text]
    for call in re.finditer(r"(?:^|[\s(|;])(?:build/release/)?adjoint((?:\s+[^\s|;<>)'\"]+|\s+'[^']*'|\s+\"[^\"]*\")*)", command.text):
        given = [word for word in documents.words(call[1]) if word != "\\"]
        path = []
        while given and given[0] in binary.subcommands(*path):
            path.append(given.pop(0))
        if given and not path and re.fullmatch(r"[a-z]+", given[0]) and given[0] not in UNLISTED:
            out.append(f"adjoint has no command '{given[0]}'")
        if path == ["launch"] and "--" in given:
            given = given[:given.index("--")]
        known = binary.flags(*path)
        out += [f"adjoint {' '.join(path)} has no flag {word}" for word in given
                if re.match(r"--?[a-z]", word) and word.split("=")[0] not in known]
    return out


def run(command: documents.Command, folder: pathlib.Path, adjoint: str) -> str:
    """What is wrong with how it ended, or nothing."""
    environment = dict(os.environ, PATH=f"{folder / '.bin'}:{os.environ['PATH']}", DOCUMENTS_ADJOINT=adjoint,
                       OMP_WAIT_POLICY="passive", XDG_CACHE_HOME=str(folder / ".cache"))
    text = COMPLETED.get(command.text, command.text)
    if command.inline and re.search(r"\badjoint train\b", text) and not re.search(r"--(data|config|resume|repeat)\b", text):
        text += " --data book.txt --out runs/inline" + (" --stack data_parallel" if "--stack" not in text and re.search(r"mpirun|--ranks", text) else "")
    try:
        ended = subprocess.run(["bash", "-o", "pipefail", "-c", text], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return f"did not end within {LIMIT} s"
    refused = any(re.search(pattern, command.text) for pattern in REFUSED)
    if ended.returncode == (1 if refused else 0):
        return ""
    return f"ended with {ended.returncode}, wanted {int(refused)}:\n    " + "\n    ".join(ended.stdout.decode(errors="replace").strip().splitlines()[-6:])


def reason_not_to_run(command: documents.Command) -> str:
    for pattern, reason in EXCEPTIONS:
        if re.search(pattern, command.text):
            return reason
    if command.text.startswith("--"):
        return "a flag in a sentence"
    if FORM.search(command.text):
        return "a form"
    if re.fullmatch(r"((build/release/)?adjoint( [a-z]+){0,2}( --json)?|mpirun)", command.text) and command.inline and command.text not in COMPLETED:
        return "a name in a sentence"
    return ""


def check_page(page: pathlib.Path, binary: Binary, runs: bool, quick: bool, verbose: bool) -> tuple[int, int, int]:
    """How many commands a page has, how many ran, and how many are wrong."""
    shown, ran, wrong, seen = documents.commands(page), 0, 0, set()
    with tempfile.TemporaryDirectory(prefix="documents-") as name:
        folder = pathlib.Path(name)
        fill(folder, page)
        before = BEFORE.get(documents.name_of(page))
        if runs and before:
            trouble = run(documents.Command(documents.name_of(page), 0, before, False), folder, binary.path)
            if trouble:
                print(f"{documents.name_of(page)}: what comes before its commands ({before}) {trouble}")
                wrong += 1
        for command in shown:
            for trouble in wrong_flags(binary, command):
                print(f"{command}: {trouble}")
                wrong += 1
            if not runs or command.text in seen or reason_not_to_run(command) or (quick and SLOW.search(command.text)):
                continue
            seen.add(command.text)
            started = time.monotonic()
            trouble = run(command, folder, binary.path)
            ran += 1
            if trouble:
                print(f"{command}: {trouble}", flush=True)
                wrong += 1
            elif verbose:
                print(f"{time.monotonic() - started:6.1f} s  {command}", flush=True)
    return len(shown), ran, wrong


def main() -> int:
    if sys.argv[1:2] == ["--stand-in"]:
        return stand_in(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adjoint")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", help="the name of one page")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    binary = Binary(str(pathlib.Path(arguments.adjoint).resolve()))
    if not binary.subcommands():
        print(f"{arguments.adjoint}: wanted an adjoint that says --help")
        return 1
    pages = {documents.name_of(page): page for page in documents.pages() if documents.name_of(page) not in HELD_ELSEWHERE}
    if arguments.only:
        chosen = {name: page for name, page in pages.items() if arguments.only in (name, page.name)}
        if not chosen:
            print(f"run_documents: there is no page '{arguments.only}', only {', '.join(pages)}")
            return 2
        pages = chosen
    counts = [0, 0, 0]
    for name, page in pages.items():
        runs = not arguments.quick or name in QUICK
        counts = [a + b for a, b in zip(counts, check_page(page, binary, runs, arguments.quick, arguments.verbose))]
    print(f"{counts[0]} commands and flags in documents, {counts[1]} run, {counts[2]} wrong")
    return int(counts[2] > 0)


if __name__ == "__main__":
    sys.exit(main())
