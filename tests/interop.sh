#!/bin/sh
# interop.sh TESTS WORK: files go from Wengert to Python's safetensors and NumPy and back. Exits with 77, "skipped", where Python
# (the one called $PYTHON, or python3) does not have them.
set -eu
here=$(dirname "$0") tests=$1 work=$2 python=${PYTHON:-python3}
if ! reason=$("$python" -c 'import numpy, safetensors' 2>&1); then
  echo "interop: skipped: $python: $(echo "$reason" | tail -n 1)"
  exit 77
fi
rm -rf "$work"
mkdir -p "$work"
export WENGERT_INTEROP="$work"
"$tests" --no-skip --test-case='interop: Wengert writes'
"$python" "$here/interop.py" "$work"
"$tests" --no-skip --test-case='interop: Wengert reads'
