#!/usr/bin/env bash
# Tests the studio's page by what a person would do, in a headless browser, against the binary's own server:
#   scripts/test_page.sh build/release/adjoint [tests/stack.spec.mjs ...]
# Exits with 77 (skipped) where the page was not built, or there is no Node or no browser; `make test` sees to all of them.
set -euo pipefail
adjoint=$(realpath "${1:?which adjoint? Say scripts/test_page.sh build/release/adjoint}")
shift
cd "$(dirname "$0")/../studio"
skip() { echo "skipped: $*"; exit 77; }
node -e 'process.exit(+(parseInt(process.versions.node) < 18))' 2>/dev/null ||
  skip "these tests want Node 18 or newer, and there is $(node --version 2>/dev/null || echo none)"
[[ -f dist/index.html && -d node_modules ]] || skip "the page was not built (scripts/build_page.sh)"
command -v chromium >/dev/null || [[ -n ${CHROMIUM:-} ]] || skip "there is no browser (scripts/setup.sh chromium)"
tests=("$@")
[[ ${#tests[@]} -gt 0 ]] || tests=(tests/*.spec.mjs)
export ADJOINT=$adjoint PAGE=$PWD/dist
# A browser that the processor draws may be late once on a machine that does other things: what fails is run once more, and said.
failed=() wrong=()
for file in "${tests[@]}"; do node --test "$file" || failed+=("$file"); done
for file in "${failed[@]}"; do
  echo "test_page: $file failed; once more"
  node --test "$file" || wrong+=("$file")
done
[[ ${#failed[@]} -eq 0 ]] || echo "test_page: failed at first: ${failed[*]}; failed twice: ${wrong[*]:-none}"
[[ ${#wrong[@]} -eq 0 ]]
