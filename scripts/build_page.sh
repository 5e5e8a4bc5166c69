#!/usr/bin/env bash
# Builds the studio's page into studio/dist, unless what is there is newer than all that it is made of. Needs Node 18 or newer and npm,
# which it installs from the distribution where there are none. Exits with 77 where that gives no Node, or an older one.
set -euo pipefail
cd "$(dirname "$0")/../studio"
command -v node >/dev/null && command -v npm >/dev/null || ../scripts/setup.sh nodejs npm || true
if ! command -v npm >/dev/null || ! node -e 'process.exit(+(parseInt(process.versions.node) < 18))'; then
  echo "build_page: the studio's page wants Node 18 or newer and npm, and there is $(node --version 2>/dev/null || echo none)" >&2
  exit 77
fi
if [[ ! -d node_modules || package-lock.json -nt node_modules/.package-lock.json ]]; then
  npm ci --no-audit --no-fund
fi
# Folders count too: theirs is the time at which a file was added or deleted. licences.txt is written last.
sources=(src public index.html package.json package-lock.json svelte.config.js tsconfig.json vite.config.ts
         ../devices ../scripts/build_page.sh ../scripts/collect_licences.mjs)
if [[ -f dist/licences.txt && -z $(find "${sources[@]}" -newer dist/licences.txt -print -quit) ]]; then
  exit 0
fi
rm -rf dist
npm run build
node ../scripts/collect_licences.mjs >node_modules/licences.part
mv node_modules/licences.part dist/licences.txt
