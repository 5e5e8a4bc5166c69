#!/usr/bin/env bash
# Fails when a source file is not formatted as .clang-format says; `make format` (--repair) repairs it.
set -euo pipefail
cd "$(dirname "$0")/.."
how=(--dry-run --Werror)
[[ ${1:-} == --repair ]] && how=(-i)
git ls-files --cached --others --exclude-standard '*.cpp' '*.h' '*.cu' '*.cuh' |
  xargs -r clang-format "${how[@]}"
