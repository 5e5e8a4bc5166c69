#!/usr/bin/env bash
# Installs a build under a prefix: install.sh BUILD PREFIX [DESTDIR]. The list of what was installed stays there, for
# uninstall.sh: files, and with a slash behind them the folders that were made for them.
set -euo pipefail
export LC_ALL=C  # lengths in bytes, one order for sort and comm
build=$1 prefix=$(realpath -ms "$2") destdir=${3:+$(realpath -ms "$3")}
destdir=${destdir%/}
list=$prefix/share/adjoint/installed.txt
work=$(mktemp -d)
trap 'rm -rf "$work" "$build/install_manifest.txt"' EXIT  # after `sudo make install` its owner would be root

# Folders that are there, under the prefix and above it.
folders() {
  local above=$prefix
  { find "$destdir$prefix" -type d 2>/dev/null || true
    while above=${above%/*} && [[ $above ]]; do [[ ! -d $destdir$above ]] || echo "$destdir$above"; done
  } | cut -c $((${#destdir} + 1))- | sort
}

folders >"$work/before"
DESTDIR=$destdir cmake --install "$build" --prefix "$prefix" >/dev/null
mkdir -p "$destdir${list%/*}"
folders >"$work/after"
{ grep . "$build/install_manifest.txt"; echo "$list"; } | sort >"$work/files"
comm -13 "$work/before" "$work/after" | sed 's|$|/|' >"$work/made"
# What an earlier installation put there: its files go where this one has none of the name, its folders stay ours.
if [[ -f $destdir$list ]]; then
  grep -v '/$' "$destdir$list" | sort | comm -23 - "$work/files" | while IFS= read -r file; do rm -f "$destdir$file"; done
  grep '/$' "$destdir$list" >>"$work/made" || true
fi
cat "$work/files" <(sort -u "$work/made") >"$destdir$list.part"
mv "$destdir$list.part" "$destdir$list"
echo "installed $(wc -l <"$work/files") files under $destdir$prefix"
