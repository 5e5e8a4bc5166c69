#!/usr/bin/env python3
"""Holds the direction of includes: a room of src/ sees only the rooms to its left.

Rooms joined on one line are siblings and do not see each other.
"""
import pathlib
import re
import sys

ORDER = [
    {"base"},
    {"scheme", "device"},
    {"data", "schedules"},
    {"comm"},
    {"body"},
    {"ops"},
    {"models", "analysis", "kernels"},
    {"functors"},
    {"cost", "edit"},
    {"plan"},
    {"run"},
    {"train"},
    {"laws"},
    {"report"},
    {"bench", "studio"},
    {"cli"},
]
# What a fusion must know of a target it asks through ops/fusion_limits.h.
HIDDEN = {("functors", "kernels")}
# A shell around the commands, which knows nothing of what they do.
ONLY = {"studio": {"base"}}
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}


def main() -> int:
    src = pathlib.Path(__file__).resolve().parent.parent / "src"
    wrong = 0
    for path in sorted(src.rglob("*")):
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh", ".inc"}:
            continue
        room = path.relative_to(src).parts[0]
        if room not in RANK:
            print(f"{path}: '{room}' is not a room of the house: {sorted(RANK)}")
            wrong += 1
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = re.match(r'\s*#include "([a-z]+)/', line)
            if not found or found[1] == room:
                continue
            hidden = (room, found[1]) in HIDDEN or found[1] not in ONLY.get(room, RANK)
            if RANK.get(found[1], len(ORDER)) >= RANK[room] or hidden:
                print(f"{path}:{number}: {room} may not include {found[1]}: includes go one way")
                wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
