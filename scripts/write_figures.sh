#!/usr/bin/env bash
# Draws the figures of docs/memory.md anew. All are predictions for one device, so every machine draws the same.
# scripts/write_documents.py runs these lines, the one with --pareto-chart with --slow.
#   scripts/write_figures.sh build/release/adjoint
set -euo pipefail
adjoint=${1:?which adjoint? Say scripts/write_figures.sh build/release/adjoint}
figures=$(dirname "$0")/../docs/figures
"$adjoint" plan --model gpt2 --batch 32 --device h200 --stack bf16 --compare 'bf16 | checkpoint(block)' \
  --chart "$figures/gpt2_memory.svg" > /dev/null
"$adjoint" plan --model gpt2 --batch 32 --device h200 --stack 'bf16 | accumulate(8) | offload(optimizer)' \
  --chart "$figures/gpt2_parts.svg" > /dev/null
"$adjoint" plan --model gpt2 --batch 8 --device h200 --pareto-chart "$figures/gpt2_pareto.svg" > /dev/null
