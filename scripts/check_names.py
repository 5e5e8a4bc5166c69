#!/usr/bin/env python3
"""Holds that nobody outside ops and kernels decides by an op's name: facts live with the op.

What is left from before is counted per file, and may only become less: whoever removes one lowers the number here.
"""
import pathlib
import re
import sys

COMPARISON = re.compile(r'(\bop|\.op|\bdef\.name|\bop\.name)\s*(==|!=)\s*"|\bop\.starts_with\("')
ALLOWED = {}


def main() -> int:
    src = pathlib.Path(__file__).resolve().parent.parent / "src"
    wrong = 0
    for path in sorted(src.rglob("*")):
        name = path.relative_to(src).as_posix()
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh"} or name.startswith(("ops/", "kernels/")):
            continue
        lines = [n for n, line in enumerate(path.read_text().splitlines(), 1) if COMPARISON.search(line)]
        if len(lines) > ALLOWED.get(name, 0):
            at = ", ".join(map(str, lines))
            print(f"src/{name}: {len(lines)} comparisons with names of ops (lines {at}), {ALLOWED.get(name, 0)} are left from"
                  " before: give the op a fact (ops/op_def.h) and ask for that")
            wrong += 1
        elif len(lines) < ALLOWED.get(name, 0):
            print(f"src/{name}: {len(lines)} comparisons are left, scripts/check_names.py allows {ALLOWED[name]}: lower it")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
