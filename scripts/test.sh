#!/usr/bin/env bash
# Builds everything and runs the tests, from a fresh clone on.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh
cmake --preset release
cmake --build --preset release
ctest --preset release -j "$(nproc)" "$@"
