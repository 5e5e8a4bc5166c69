#!/usr/bin/env python3
"""Holds that nobody outside ops and kernels decides by an op's name: facts live with the op (ops/op_def.h)."""
import pathlib
import re
import sys

COMPARISON = re.compile(r'(\bop|\.op|->op|\bop(\.|->)name)\s*(==|!=)|(==|!=)\s*[\w.\[\]]+(\.|->)op\b(?!\w|\()'
                        r'|\bop(\.|->)?(starts_with|ends_with|find)\(|attrs\.(find|count|at)\("op"\)')
# file: why a comparison there decides nothing of what a call computes
EXEMPT = {
    "functors/text_morphisms.cpp": "a rule's text names its op",
}


def main() -> int:
    src = pathlib.Path(__file__).resolve().parent.parent / "src"
    wrong = 0
    for path in sorted(src.rglob("*")):
        name = path.relative_to(src).as_posix()
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh"} or name.startswith(("ops/", "kernels/")) or name in EXEMPT:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if COMPARISON.search(line.split("//")[0]):
                print(f"src/{name}:{number}: compares names of ops; give the op a fact (ops/op_def.h) and ask for that")
                wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
