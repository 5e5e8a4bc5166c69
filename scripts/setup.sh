#!/usr/bin/env bash
# Installs what the build, the tests and the demo need, from the distribution's packages alone.
# Does nothing, and needs no rights, when all of it is already there.
set -euo pipefail

packages=(
  g++ cmake ninja-build python3 git        # build
  libdnnl-dev                              # matrix products on the CPU
  libxbyak-dev                             # machine code for elementwise and row bodies
  libpcre2-dev libutf8proc-dev libsentencepiece-dev  # patterns, normal forms and models of tokenizers
  libcli11-dev nlohmann-json3-dev libtomlplusplus-dev libfmt-dev libxxhash-dev
  zlib1g-dev libzstd1                      # data that are compressed
  libgtest-dev libbenchmark-dev clang-format  # tests and `adjoint bench`
  libopenmpi-dev openmpi-bin               # ranks that are processes
  coinor-libcbc-dev                        # proofs of optimality in tests
  bible-kjv                                # the demo's text, public domain
)
packages+=("$@")  # what one target alone needs, as `make tidy` does

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [[ $status == "install ok installed" ]] || missing+=("$package")
done
[[ ${#missing[@]} == 0 ]] && exit 0

echo "setup: installing ${missing[*]}"
as_root=()
if [[ $(id -u) != 0 ]]; then
  command -v sudo >/dev/null || { echo "setup: run as root: apt-get install ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
