#!/usr/bin/env python3
"""Prints the matrix of what composes into docs/composition.md, between its two markers.

Usage: scripts/write_matrix.py build/release/adjoint
"""
import pathlib
import subprocess
import sys

import documents

BEGIN, END = "<!-- matrix -->\n", "<!-- /matrix -->"


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent
    models = [str(root / "tests/models" / name) for name in ("hybrid.scheme", "odd.scheme")]
    run = subprocess.run([sys.argv[1], "verify", "--matrix", "--with", *models],
                         stdout=subprocess.PIPE, text=True, check=False)
    document = root / "docs/composition.md"
    text = document.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END, 1)[1]
    if run.stdout:
        documents.write(document, before + BEGIN + run.stdout + END + after)
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
