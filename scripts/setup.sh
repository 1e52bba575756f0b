#!/usr/bin/env bash
# Installs what is missing to build Wengert: with `--checks` also what scripts/check-all.sh needs.
# Uses apt-get (through sudo when not root); changes nothing, and needs no rights, where everything is there. Never asks
# anything when there is no terminal.
set -euo pipefail

# package:what it brings (a command, a header below /usr/include or /usr/local/include, or a path)
wanted=(
  g++:c++
  cmake:cmake
  ninja-build:ninja
  pkg-config:pkg-config
  libfmt-dev:fmt/core.h
  xtl-dev:xtl/xtl_config.hpp
  libxtensor-dev:xtensor
  libxsimd-dev:xsimd/xsimd.hpp
  libdnnl-dev:oneapi/dnnl/dnnl.hpp
  libcli11-dev:CLI/CLI.hpp
  nlohmann-json3-dev:nlohmann/json.hpp
  libcairo2-dev:cairo/cairo.h
  doctest-dev:doctest/doctest.h
  libbenchmark-dev:benchmark/benchmark.h
)
if [[ "${1:-}" == --checks ]]; then
  wanted+=(
    clang:clang++
    clang-format:clang-format
    clang-tidy:clang-tidy
    clang-tools:run-clang-tidy
    'libclang-rt-dev:/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.tsan-*.a'
    'libomp-dev:/usr/lib/llvm-*/lib/libomp.so'
    shellcheck:shellcheck
    qemu-user:qemu-x86_64
    git:git
  )
elif [[ $# -gt 0 ]]; then
  echo "usage: setup.sh [--checks]" >&2
  exit 2
fi

missing=()
for line in "${wanted[@]}"; do
  package=${line%%:*} thing=${line#*:}
  case $thing in
    /*) compgen -G "$thing" >/dev/null || missing+=("$package") ;;
    *) command -v "$thing" >/dev/null || [[ -e /usr/include/$thing || -e /usr/local/include/$thing ]] || missing+=("$package") ;;
  esac
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

if ! command -v apt-get >/dev/null; then
  echo "setup: this machine has no apt-get; install what these Debian packages hold, then try again: ${missing[*]}" >&2
  exit 1
fi
as_root=()
if [[ $(id -u) -ne 0 ]]; then
  as_root=(sudo)
  [[ -t 0 ]] || as_root=(sudo -n)
  if ! command -v sudo >/dev/null || { [[ ! -t 0 ]] && ! sudo -n true 2>/dev/null; }; then
    echo "setup: not root, and sudo is not at hand; have somebody run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
fi
echo "setup: installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq </dev/null
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >/dev/null
