#!/usr/bin/env bash
# Installs the Debian package in a bare system, trains with it, and removes it again: check_deb.sh [PACKAGES] [--library].
# The system is a chroot that debootstrap makes of this machine's own release, with this machine's apt sources and nothing
# else of it. With --library also: the example that finds libadjoint-dev is built there, which wants packages that were built
# without CUDA. Needs root, a network and `make deb`; a few minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=build/release/packages library=
for word in "$@"; do
  [[ $word == --library ]] && library=1 || packages=$word
done
program=$(ls "$packages"/adjoint_*.deb) || { echo "check_deb: make deb first" >&2; exit 1; }
[[ $(id -u) == 0 ]] || { echo "check_deb: run as root" >&2; exit 1; }
scripts/setup.sh debootstrap
root=$(mktemp -d)
chmod 755 "$root"  # apt's own user reads there
cleanup() {
  umount "$root/proc" 2>/dev/null || true
  rm -rf --one-file-system "$root"
}
trap cleanup EXIT
say() { echo "check_deb: $* (${SECONDS} s)"; }
wrong() { echo "check_deb: $*" >&2; exit 1; }
inside() {
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"
}

. /etc/os-release
mirror=$(apt-get indextargets --format '$(SITE) $(CODENAME)' 2>/dev/null |
  awk -v release="$VERSION_CODENAME" '$2 == release {print $1; exit}')
debootstrap --variant=minbase "$VERSION_CODENAME" "$root" ${mirror:+"$mirror"} >"$root.log" 2>&1 ||
  { tail -5 "$root.log"; wrong "debootstrap failed"; }
rm -f "$root.log"
say "a bare $PRETTY_NAME"

# Where packages come from, as this machine says it.
rm -rf "$root/etc/apt"
cp -rL /etc/apt "$root/etc/apt"
[[ ! -d /usr/share/keyrings ]] || cp -rnL /usr/share/keyrings "$root/usr/share/"
[[ ! -d /etc/ssl ]] || cp -rnL /etc/ssl "$root/etc/"
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
mount -t proc proc "$root/proc"  # every system has it
inside apt-get update -qq
everything() { (cd "$root" && find . -xdev ! -type d ! -path './proc/*' ! -path './var/*' ! -path './tmp/*' ! -path './etc/ld.so.cache' | sort); }
installed() { inside dpkg-query -W -f '${Package}\n' | sort; }
everything >"$root/tmp/before"
installed >"$root/tmp/packages"

cp "$program" "$root/tmp/"
inside dpkg-deb --field "/tmp/${program##*/}" Package Version Depends Suggests Installed-Size
inside dpkg-deb --field "/tmp/${program##*/}" Depends | grep -Eiq 'cuda|cudnn|nvidia|cublas|mpi' &&
  wrong "the program depends on CUDA or MPI"
inside apt-get install -y -qq --no-install-recommends "/tmp/${program##*/}" >/dev/null 2>&1 ||
  inside apt-get install -y --no-install-recommends "/tmp/${program##*/}"  # once more, to see what it says
say "installed with $(comm -13 "$root/tmp/packages" <(installed) | wc -l) packages"

inside adjoint --version
for ((i = 0; i < 400; ++i)); do echo "a line of text, number $((i * 7 % 90)), and another word"; done >"$root/tmp/book.txt"
inside adjoint train --model char --data /tmp/book.txt --steps 30 --batch 4 --context 32 --eval-batches 2 \
  --set layers=2 hidden=64 heads=4 --out /tmp/run
inside adjoint generate --model /tmp/run --prompt "a line" --tokens 20
[[ -s $root/tmp/run/model.safetensors ]] || wrong "nothing was saved"
[[ -s $root/usr/share/man/man1/adjoint-train.1.gz ]] || wrong "there are no manual pages"
say "trained"

if [[ $library ]]; then
  cp "$packages"/libadjoint-dev_*.deb "$root/tmp/"
  inside sh -c 'apt-get install -y -qq --no-install-recommends /tmp/libadjoint-dev_*.deb g++ cmake make' >/dev/null 2>&1 ||
    wrong "libadjoint-dev cannot be installed"
  inside sh -c 'cmake -S /usr/share/doc/adjoint/examples/library -B /tmp/example && cmake --build /tmp/example' >/dev/null
  inside /tmp/example/predict 'checkpoint(every=2)'
  say "built the example"
fi

inside apt-get purge -o Dpkg::Use-Pty=0 -y -qq adjoint ${library:+libadjoint-dev g++ cmake make} >/dev/null
inside apt-get autoremove -o Dpkg::Use-Pty=0 -y -qq --purge >/dev/null
left=$(comm -13 "$root/tmp/before" <(everything))
[[ $left != *adjoint* ]] || wrong "left behind: $left"
stayed=$(comm -13 "$root/tmp/packages" <(installed))
[[ -z $stayed ]] || wrong "packages left behind: $stayed"
[[ -z $left ]] || echo "check_deb: other packages left: $left"
say "removed, and nothing of it is left"
