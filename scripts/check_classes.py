#!/usr/bin/env python3
"""Holds that no two headers define classes of one name: in one program that is undefined, and a destructor of the one may
run for the other, without a word from compiler or linker."""
import collections
import pathlib
import re
import sys

BEGIN = re.compile(r"^namespace\s*([\w:]*)\s*\{")
END = re.compile(r"^\}\s*// namespace")
CLASS = re.compile(r"^(?:template\s*<.*>\s*)?(?:struct|class|enum class|union)\s+(\w+)\b[^;()]*\{")


def classes(path: pathlib.Path):
    spaces = []
    for line in path.read_text().splitlines():
        if begin := BEGIN.match(line):
            spaces.append(begin.group(1))
        elif END.match(line) and spaces:
            spaces.pop()
        elif (found := CLASS.match(line)) and "" not in spaces:
            yield "::".join([*spaces, found.group(1)])


def main() -> int:
    src = pathlib.Path(__file__).resolve().parent.parent / "src"
    where = collections.defaultdict(set)
    for path in sorted(src.rglob("*")):
        if path.suffix in {".h", ".cuh"}:
            for name in classes(path):
                where[name].add(path.relative_to(src).as_posix())
    wrong = 0
    for name, files in sorted(where.items()):
        if len(files) > 1:
            print(f"{name} is defined in src/{', src/'.join(sorted(files))}: give all but one of them another name")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
