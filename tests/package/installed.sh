#!/usr/bin/env bash
# Installs a build into a folder, twice, builds and runs the example that finds the library there, and uninstalls it again:
# installed.sh BUILD SOURCE.
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
list=$prefix/share/adjoint/installed.txt
wrong() { echo "installed.sh: $*" >&2; exit 1; }

mkdir -p "$prefix/bin"  # a folder that is not ours, and stays
(cd "$work" && "$source/scripts/install.sh" "$build" prefix/)
[[ ! -e $build/install_manifest.txt ]] || wrong "the build has a file whose owner may be root"
adjoint=$prefix/bin/adjoint
"$adjoint" --version | tee "$work/version"
if ls "$build"/lib/libadjoint_*.so >/dev/null 2>&1; then
  grep -q "^MPI .*$prefix/lib" "$work/version" || wrong "the installed binary does not find its MPI library"
fi
for page in adjoint adjoint-train adjoint-bench-step; do
  [[ -s $prefix/share/man/man1/$page.1.gz ]] || wrong "there is no page $page.1.gz"
done
for script in bash-completion/completions/adjoint zsh/site-functions/_adjoint fish/vendor_completions.d/adjoint.fish; do
  [[ -s $prefix/share/$script ]] || wrong "there is no $script"
done

for package in adjoint libadjoint-dev $(ls "$build"/lib/libadjoint_*.so 2>/dev/null | sed 's|.*libadjoint_\(.*\)[.]so|adjoint-\1|'); do
  grep -q "PCRE2 *BSD-3-Clause" "$prefix/share/doc/$package/copyright" || wrong "$package says nothing of the licences of others"
done
! grep -rl "xbyak/" "$prefix/include" || wrong "a header wants Xbyak"

cmake -S "$source/examples/library" -B "$work/example" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >"$work/configured" 2>&1 ||
  { cat "$work/configured"; wrong "the example does not find the library"; }
grep -rq "$source/src" "$prefix/lib/cmake" && wrong "the package names the folder that it was built in"
cmake --build "$work/example" >"$work/built" 2>&1 || { cat "$work/built"; wrong "the example does not build"; }
for stack in "" "checkpoint(every=2) | bf16"; do
  "$work/example/predict" "$stack" | tee "$work/told"
  predicted=$(grep -oP '\d+(?= bytes predicted)' "$work/told")
  touched=$(grep -oP '\d+(?= bytes touched)' "$work/told")
  [[ $predicted == "$touched" ]] || wrong "'$stack': $predicted bytes were predicted, and $touched touched"
done
"$work/example/predict" "checkpoint(evry=2)" 2>"$work/told" && wrong "a wrong stack is taken"
grep -q "^predict: .*every" "$work/told" || { cat "$work/told"; wrong "a wrong stack is not explained"; }

# An older installation had a file that this one lacks.
touch "$prefix/share/adjoint/older" "$prefix/share/other"
echo "$prefix/share/adjoint/older" >>"$list"
"$source/scripts/install.sh" "$build" "$prefix"
[[ ! -e $prefix/share/adjoint/older ]] || wrong "a file of an older installation stayed"
"$source/scripts/uninstall.sh" "$prefix//"
[[ $(find "$prefix" ! -type d) == "$prefix/share/other" ]] || wrong "left behind: $(find "$prefix" ! -type d)"
[[ $(find "$prefix" -mindepth 1 -type d | sort | tr '\n' ' ') == "$prefix/bin $prefix/share " ]] || wrong "folders left behind: $(find "$prefix")"
"$source/scripts/uninstall.sh" "$prefix" 2>"$work/told" && wrong "what is not installed is uninstalled"
echo "installed, used and removed"
