#!/usr/bin/env python3
"""Writes docs/mistakes.md of tests/cli/mistakes.txt, to which a test holds the program.

    scripts/write_mistakes.py          # writes the page
    scripts/write_mistakes.py --check  # fails where the page is another
"""
import sys

import documents
from documents import ROOT

LIST = ROOT / "tests/cli/mistakes.txt"
PAGE = ROOT / "docs/mistakes.md"

HEAD = """# Typical mistakes, and their answers

(Written by `scripts/write_mistakes.py` of `tests/cli/mistakes.txt`, to which `cli_test` holds the program, word by word.)

Whatever is refused is refused before anything is written, in one sentence on standard error that names the nearest right word where
one is near. The exit code is 2 where the command line cannot be read: an unknown command or flag, a flag without its value, a word
where a flag wants a number. It is 1 where what it says is wrong, and where a file that it names cannot be read. What can hardly be
meant is a warning, and the work goes on.
"""


def entries():
    entry = None
    for line in LIST.read_text().splitlines():
        if line.startswith("## "):
            entry = {"title": line[3:], "command": "", "answers": [], "code": 0}
            yield entry
        elif line.startswith("$ ") and entry:
            entry["command"] = line[2:]
        elif line[:1].isdigit() and entry:
            entry["code"] = int(line[0])
            entry["answers"].append(line[2:])


def page():
    everything = list(entries())
    out = HEAD
    for title, wanted in [("Refused", lambda e: e["code"] != 0), ("Warned of", lambda e: e["code"] == 0)]:
        out += f"\n## {title}\n\n"
        for number, entry in enumerate(filter(wanted, everything), 1):
            code = f" (exit code {entry['code']})" if entry["code"] else ""
            out += f"{number}. {entry['title']}{code}:\n\n   ```\n   $ {entry['command']}\n"
            out += "".join(f"   {answer}\n" for answer in entry["answers"]) + "   ```\n\n"
        out = out.rstrip("\n") + "\n"
    return out


def main():
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text() != page():
            sys.exit("docs/mistakes.md is not what scripts/write_mistakes.py writes")
        return
    documents.write(PAGE, page())


main()
