#!/usr/bin/env python3
"""Draws the rooms of src/ at two revisions side by side, with files, lines and who includes whom.

Usage: scripts/draw_rooms.py BEFORE AFTER > docs/figures/rooms.svg

A dot is the working tree as it is, with files that git does not know yet and does not ignore.

Rooms stand in the order in which they may include one another. An arc goes from a room to one that
it includes; what follows from other arcs is left out.
"""
import collections
import os
import pathlib
import re
import subprocess
import sys

from check_includes import RANK

SUFFIXES = (".h", ".cpp", ".cu", ".cuh", ".inc")
WIDTH, ROW, TOP = 560, 30, 64
BAR, ARCS = 190, 330  # where bars and arcs begin
STYLE = """<style>
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 15px; font-weight: 600 }
  .small { font-size: 11px; fill: #59636e }
  .bar { fill: #54aeff } .inner { fill: #b6e3ff }
  .arc { fill: none; stroke: #8c959f; stroke-width: 1.2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 } .back { fill: #0d1117 }
    .bar { fill: #1f6feb } .inner { fill: #0c2d6b } .arc { stroke: #6e7681 }
  }
</style>"""


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout


class House:
    """Rooms of one revision."""

    def __init__(self, revision: str) -> None:
        self.files, self.lines = collections.Counter(), collections.Counter()
        self.includes = collections.defaultdict(set)
        tree = revision == "."
        paths = git("ls-files", "-co", "--exclude-standard", "src") if tree else git("ls-tree", "-r", "--name-only", revision, "src")
        for path in paths.split():
            if not path.endswith(SUFFIXES) or (tree and not os.path.exists(path)):
                continue
            parts = path.split("/")[1:-1]
            text = pathlib.Path(path).read_text() if tree else git("show", f"{revision}:{path}")
            for room in {parts[0], "/".join(parts[:2])}:
                self.files[room] += 1
                self.lines[room] += text.count("\n")
            for other in re.findall(r'^\s*#include "([a-z]+)/', text, re.M):
                if other != parts[0] and other in RANK:
                    self.includes[parts[0]].add(other)

    def rows(self) -> list[str]:
        """Rooms from the first to the last, each with its folders behind it."""
        rooms = sorted((room for room in self.files if "/" not in room), key=lambda room: (RANK[room], room))
        return [row for room in rooms
                for row in [room, *sorted(r for r in self.files if r.startswith(room + "/"))]]

    def reaches(self, room: str, other: str) -> bool:
        return any(o == other or self.reaches(o, other) for o in self.includes[room])

    def arcs(self) -> list[tuple[str, str]]:
        return [(room, other) for room, others in sorted(self.includes.items()) for other in sorted(others)
                if not any(self.reaches(between, other) for between in others if between != other)]


def draw(house: House, title: str, x: int, most: int) -> tuple[list[str], int]:
    rows = house.rows()
    place = {room: TOP + ROW * i for i, room in enumerate(rows)}
    out = [f'<text class="title" x="{x}" y="28">{title}</text>']
    for room, y in place.items():
        inner = "/" in room
        width = max(2, round(house.lines[room] / most * 95))
        name = room.split("/")[-1] if inner else room
        out.append(f'<text x="{x + 22 * inner}" y="{y + 14}"{" class=small" if inner else ""}>{name}</text>'
                   .replace("class=small", 'class="small"'))
        out.append(f'<text class="small" x="{x + BAR - 8}" y="{y + 14}" text-anchor="end">'
                   f'{house.files[room]} files</text>')
        out.append(f'<rect class="{"inner" if inner else "bar"}" x="{x + BAR}" y="{y + 3}" width="{width}" '
                   f'height="14" rx="2"/>')
        out.append(f'<text class="small" x="{x + BAR + width + 5}" y="{y + 14}">{house.lines[room]:,}</text>')
    for room, other in house.arcs():
        start, end = place[room] + 8, place[other] + 13
        reach = min(20 + (start - end) * 0.42, 270)  # three quarters of it stay inside the picture
        at = x + ARCS + 12
        out.append(f'<path class="arc" marker-end="url(#head)" d="M {at} {start} C {at + reach} {start}, '
                   f'{at + reach} {end}, {at + 3} {end}"/>')
    return out, TOP + ROW * len(rows)


def main() -> int:
    houses = [House(revision) for revision in sys.argv[1:3]]
    most = max(max(house.lines.values()) for house in houses)
    parts, height = [], 0
    for i, (house, title) in enumerate(zip(houses, ("before", "now"))):
        lines = sum(n for room, n in house.lines.items() if "/" not in room)
        drawn, bottom = draw(house, f"{title}: {lines:,} lines", 20 + WIDTH * i, most)
        parts += drawn
        height = max(height, bottom + 16)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH + 20} {height}">\n{STYLE}\n'
          '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
          'orient="auto"><path d="M 0 0 L 8 4 L 0 8 z" fill="#8c959f"/></marker></defs>\n'
          f'<rect class="back" width="100%" height="100%" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>")
    return 0


if __name__ == "__main__":
    sys.exit(main())
