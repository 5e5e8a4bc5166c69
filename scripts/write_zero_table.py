#!/usr/bin/env python3
"""Writes the table of ZeRO's model states (Rajbhandari et al., 2019, figure 1) and of ours into docs/rank_accounts.md, between its markers.

    scripts/write_zero_table.py build/release/adjoint            writes it
    scripts/write_zero_table.py build/release/adjoint --check    exits 1 where the document says something else
"""
import json
import pathlib
import subprocess
import sys

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "rank_accounts.md"
BEGIN, END = "<!-- zero states -->\n", "<!-- /zero states -->"
RANKS, GB = 64, 1e9
MODEL = ["--model", "gpt2", "--set", "layers=36", "hidden=4096", "heads=32", "--batch", str(RANKS), "--context", "1024"]
STACK = f"bf16 | checkpoint(block) | data_parallel({RANKS})"
# Bytes per parameter: 16-bit weights, 16-bit gradients, and master weights, momentum and variance in float32.
STAGES = [  # name, our functor, and which of the three the paper divides by the number of ranks
    ("data parallel", "", (False, False, False)),
    ("stage 1 (P_os)", " | zero(1)", (False, False, True)),
    ("stage 2 (P_os+g)", " | zero(2)", (False, True, True)),
    ("stage 3 (P_os+g+p)", " | zero(3)", (True, True, True)),
]


def planned(adjoint: str, stack: str) -> dict:
    out = subprocess.run([adjoint, "plan", *MODEL, "--json", "--stack", stack], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def table(adjoint: str) -> str:
    lines = [
        "| GB a rank | 16-bit weights | gradients | float32 weights | moments | in all, published |"
        " float32 weights | moments | gradients, pieces | at work: copies | at work: gradients | in all, ours |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, functor, divided in STAGES:
        ours = planned(adjoint, STACK + functor)
        count, states = 7.5e9, ours["model_states"]
        share = [RANKS if d else 1 for d in divided]
        theirs = [2 * count / share[0], 2 * count / share[1], 4 * count / share[2], 8 * count / share[2]]
        mine = [states[k] for k in ("parameters", "optimizer_state", "gradient_pieces", "copies", "gradients")]
        cells = [f"{x / GB:.2f}" for x in [*theirs, sum(theirs), *mine, states["all"]]]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    new = table(sys.argv[1])
    text = DOCUMENT.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    if "--check" in sys.argv[2:]:
        if text[begin:end] != new:
            print(f"docs/rank_accounts.md does not have this table:\n{new}")
        return int(text[begin:end] != new)
    DOCUMENT.write_text(text[:begin] + new + text[end:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
