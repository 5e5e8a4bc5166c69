#!/usr/bin/env bash
# clang-tidy's chosen checks (.clang-tidy says which, and why not others) over src, or over the files that are named; with
# --recent over those that the commits of the last day before the newest one changed, for all of src takes half an hour of two cores.
# Nothing is built: the preset `tidy` writes the compile commands, one for each file. Left
# out is what clang 14 cannot compile: CUDA's own files, which are nvcc's, and two files that use GCC's vectors.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset tidy >/dev/null

if [[ ${1:-} == --recent ]]; then
  since=$(date -d "$(git log -1 --format=%cI) - 1 day" --iso-8601=seconds)
  base=$(git rev-list -1 --before="$since" HEAD)
  mapfile -t files < <(git diff --name-only --diff-filter=AM "${base:-$(git hash-object -t tree /dev/null)}" HEAD -- 'src/*.cpp')
  [[ ${#files[@]} -gt 0 ]] || exit 0
  echo "tidy: ${#files[@]} files changed since $since"
  set -- "${files[@]}"
fi
files=("$@")
[[ ${#files[@]} == 0 ]] && files=('src/.*')
not_clang='(?!.*/kernels/cpu/(attention_rows|small_product)\.cpp$)'
patterns=()
for file in "${files[@]}"; do
  [[ $file == *.cu || $file == *.cuh || $file == *.h ]] || patterns+=("^$not_clang$PWD/${file%.cpp}\\.cpp$")
done
[[ ${#patterns[@]} == 0 ]] && exit 0

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! run-clang-tidy -quiet -j "$(nproc)" -p build/tidy "${patterns[@]}" >"$log" 2>&1; then
  grep -E -A3 '(warning|error):' "$log" || cat "$log"
  exit 1
fi
[[ -s $log ]] || { echo "tidy: no file of the compile commands is among: ${files[*]}" >&2; exit 1; }
