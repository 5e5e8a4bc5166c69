#!/usr/bin/env bash
# Fails when a source file is not formatted as .clang-format says; `make format` repairs it.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files --cached --others --exclude-standard '*.cpp' '*.h' | xargs -r clang-format --dry-run --Werror
