#!/usr/bin/env bash
# Removes what install.sh put under a prefix: uninstall.sh PREFIX [DESTDIR]. Of the folders go those that it made, if nothing
# else is in them.
set -euo pipefail
prefix=$(realpath -ms "$1") destdir=${2:+$(realpath -ms "$2")}
destdir=${destdir%/}
list=$destdir$prefix/share/adjoint/installed.txt
[[ -f $list ]] || { echo "uninstall: there is no $list, so nothing tells what was installed" >&2; exit 1; }
mapfile -t files < <(grep -v '/$' "$list")
mapfile -t folders < <(grep '/$' "$list" | sort -r)  # what is inside comes before what it is in
for file in "${files[@]}"; do rm -f "$destdir$file"; done
for folder in "${folders[@]}"; do rmdir "$destdir$folder" 2>/dev/null || true; done
echo "removed ${#files[@]} files from $destdir$prefix"
