#!/bin/sh
# interop.sh TESTS WORK: files go from Wengert to Python's safetensors and NumPy and back, and models to transformers and back.
# Exits with 77, "skipped", where Python (the one called $PYTHON, or python3) does not have the first two.
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

if ! reason=$("$python" -c 'import torch, transformers' 2>&1); then
  echo "interop: GPT-2 skipped: $python: $(echo "$reason" | tail -n 1)"
  exit
fi
export HF_HUB_OFFLINE=1
mkdir -p "$work/gpt2_ours"
"$python" "$here/interop_models.py" write "$work"
"$tests" --no-skip --test-case='interop: GPT-2*'
"$python" "$here/interop_models.py" check "$work"
