#!/usr/bin/env bash
# Tests the studio's page by what a person would do, in a headless browser, against the binary's own server:
#   scripts/test_page.sh build/release/adjoint [tests/stack.spec.mjs ...]
# A file of tests may take LIMIT seconds (240). Exits with 77 (skipped) where the page was not built, or there is no Node or no browser;
# `make test` sees to all of them.
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
# The tests write here that the browser did not start, or was killed: that is no fault of the page, and such a file is run once more.
BROWSER_LOST=$(mktemp)
trap 'rm -f "$BROWSER_LOST"' EXIT
export ADJOINT=$adjoint PAGE=$PWD/dist BROWSER_LOST
# The limit ends the browser and the studios with the test, which an end of this script alone would leave behind.
run() { timeout -k 10 "${LIMIT:-240}" node --test "$1"; }
failed=()
for file in "${tests[@]}"; do
  : >"$BROWSER_LOST"
  run "$file" && continue
  if [[ -s $BROWSER_LOST ]]; then
    echo "test_page: $file once more, for of the browser it was said: $(head -1 "$BROWSER_LOST")"
    run "$file" && continue
  fi
  failed+=("$file")
done
[[ ${#failed[@]} -eq 0 ]] || { echo "test_page: failed: ${failed[*]}"; exit 1; }
