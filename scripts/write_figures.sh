#!/usr/bin/env bash
# Draws the figures of docs/memory.md anew. Both are predictions, so any machine will do for time;
# bytes of a CPU's workspaces are oneDNN's to ask for, and differ by a few MB from processor to processor.
#   scripts/write_figures.sh build/release/adjoint
set -euo pipefail
adjoint=${1:?which adjoint? Say scripts/write_figures.sh build/release/adjoint}
figures=$(dirname "$0")/../docs/figures
"$adjoint" plan --model gpt2 --batch 32 --device h200 --stack bf16 --compare 'bf16 | checkpoint(block)' \
  --chart "$figures/gpt2_memory.svg" > /dev/null
"$adjoint" plan --model gpt2 --batch 8 --threads 16 --pareto-chart "$figures/gpt2_pareto.svg" > /dev/null
