#!/usr/bin/env bash
# fuzz.sh [NAME...]: runs fuzz targets, all unless some are named, for a while each (FUZZ_SECONDS, 60 unless told), from their seeds
# and what earlier runs found. FUZZ_FLAGS are given to libFuzzer (-fork=1). An input that breaks a parser is left in the build folder and
# named; put it into the seeds with the fix.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=build/fuzz
names=("$@")
if ((${#names[@]} == 0)); then
  for target in "$build"/*_fuzz; do names+=("$(basename "${target%_fuzz}")"); done
fi
# What comes with Adjoint is a good beginning, too.
declare -A shipped=([functor_text]=functors [optimizer_text]=optimizers)
for name in "${names[@]}"; do
  mkdir -p "$build/found/$name"
  echo "fuzz: $name"
  words=()
  if [[ -f tests/fuzz/$name.dict ]]; then words=(-dict="tests/fuzz/$name.dict"); fi
  # A size that lies must be refused before memory is taken: a quarter of a gigabyte at once is a failure.
  "$build/${name}_fuzz" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=10 -malloc_limit_mb=256 -rss_limit_mb=2048 -max_len=65536 \
    -print_final_stats=0 -verbosity=0 ${FUZZ_FLAGS:-} "${words[@]}" -artifact_prefix="$build/$name-" "$build/found/$name" \
    "tests/fuzz/seeds/$name" ${shipped[$name]:-}
done
