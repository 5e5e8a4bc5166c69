#!/usr/bin/env python3
"""Writes the table of what ranks of tensor_parallel send and hold into docs/rank_accounts.md, between its markers.

    scripts/write_tensor_table.py build/release/adjoint            writes it
    scripts/write_tensor_table.py build/release/adjoint --check    exits 1 where the document says something else
"""
import json
import pathlib
import subprocess
import sys

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "rank_accounts.md"
BEGIN, END = "<!-- tensor ranks -->\n", "<!-- /tensor ranks -->"
GB = 1e9
# The 22 B model of Korthikanti et al. (2022, table 3).
T, LAYERS, S, B, H, A = 8, 48, 2048, 4, 6144, 64
ALL_REDUCE = 2 * (T - 1) / T * S * B * H
STACKS = [  # and what a block keeps, in bytes for each element of a state: tests/report/activation_terms_test.cpp
    (f"tensor_parallel({T})", 4 + 16 / T + 4 * A / (H * T)),
    (f"tensor_parallel({T}, sequence=yes)", 4 + 20 / T + 4 * A / (H * T)),
    (f"tensor_parallel({T}, sequence=shards)", 24 / T + 4 * A / (H * T)),
    (f"tensor_parallel({T}) | checkpoint(block)", 2),
    (f"tensor_parallel({T}, sequence=yes) | checkpoint(block)", 2 / T),
]


def planned(adjoint: str, stack: str, layers: int) -> dict:
    sizes = [f"layers={layers}", f"hidden={H}", f"heads={A}", "vocab=51200"]
    command = [adjoint, "plan", "--model", "gpt2", "--device", "h200", "--batch", str(B), "--context", str(S), "--clip", "0", "--json"]
    out = subprocess.run([*command, "--set", *sizes, "--stack", stack], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def sent(plan: dict, dtype: str) -> int:
    return sum(row["elements"] for row in plan["mesh"]["sent"] if row["dtype"] == dtype)


def table(adjoint: str) -> str:
    lines = [
        "| stack, beside `bf16` | all-reduces of a state a block, bf16 | other elements a block, float32 |"
        " sent a step, GB | kept by a block, GB | activations at the peak, GB | peak, GB |",
        "|---|---|---|---|---|---|---|",
    ]
    for stack, kept in STACKS:
        whole = planned(adjoint, "bf16 | " + stack, LAYERS)
        # Of the difference of two lengths of the chain all that is outside of blocks is gone.
        fewer = planned(adjoint, "bf16 | " + stack, LAYERS - 12)
        block = [(sent(whole, d) - sent(fewer, d)) / 12 for d in ("bf16", "f32")]
        cells = [
            f"`{stack}`".replace("|", "\\|"),
            f"{block[0] / ALL_REDUCE:.3f}",
            f"{block[1]:.0f}",
            f"{sum(row['bytes'] for row in whole['mesh']['sent']) / GB:.1f}",
            f"{kept * S * B * H / GB:.3f}",
            f"{whole['categories']['activations'] / GB:.2f}",
            f"{whole['peak_bytes'] / GB:.1f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
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
