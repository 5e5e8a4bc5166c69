#!/usr/bin/env bash
# Runs every fuzz target for a while (FUZZ_SECONDS each, 60 unless told), from its seeds and what earlier runs found.
# An input that breaks a parser is left beside the target and named; put it into the seeds with the fix.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=build/fuzz
for target in "$build"/*_fuzz; do
  name=$(basename "${target%_fuzz}")
  mkdir -p "$build/found/$name"
  echo "fuzz: $name"
  # A size that lies must be refused before memory is taken: a quarter of a gigabyte at once is a failure.
  "$target" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=10 -malloc_limit_mb=256 -max_len=65536 -print_final_stats=0 -verbosity=0 \
    -artifact_prefix="$build/$name-" "$build/found/$name" "tests/fuzz/seeds/$name"
done
