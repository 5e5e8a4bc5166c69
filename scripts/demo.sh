#!/usr/bin/env bash
# About a minute from nothing to a model that has begun to write: the King James Bible, by characters.
set -euo pipefail
adjoint=$1
out=runs/demo
mkdir -p runs
bible -f Gen1:1-Rev22:21 | sed 's/^[^ ]* //' > runs/kjv.txt

echo "What a step will need, as predicted, and what a few steps then really touched:"
echo
"$adjoint" plan --model char --batch 12 --context 64 --vocab "$(($(fold -w1 runs/kjv.txt | sort -u | wc -l) + 1))" --measure
echo
echo "Training on $(wc -c < runs/kjv.txt) characters of the King James Bible:"
echo
"$adjoint" train --model char --data runs/kjv.txt --tokenizer char --steps 800 --batch 12 \
  --context 64 --lr 2e-3 --seed 1 --eval-every 100 --out "$out" --overwrite
echo
echo "A sample of what it writes by now:"
echo
"$adjoint" generate --model "$out" --prompt "And the LORD said" --tokens 300
cat <<NEXT

Three things to try next:
  $adjoint train --resume --out $out --steps 3000
  $adjoint plan --model gpt2 --batch 32 --context 1024
  $adjoint show --model llama3.2-1b --text
NEXT
