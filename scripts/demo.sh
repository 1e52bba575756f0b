#!/usr/bin/env bash
# From a fresh clone to position tables that learned something: installs what is missing, builds, trains five small models
# with their controls, and leaves pictures in demo-output. Options: --out DIR, --text FILE (for the models of real text).
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."

out=$PWD/demo-output text=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --out | --text)
      [[ $# -gt 1 ]] || { echo "demo.sh: $1 needs a value" >&2; exit 2; }
      value=$2
      [[ $value == /* ]] || value=$caller/$value
      if [[ $1 == --out ]]; then out=$value; else text=(--text "$value"); fi
      shift 2
      ;;
    *) echo "demo.sh: unknown option $1; there are --out DIR and --text FILE" >&2; exit 2 ;;
  esac
done

if [[ ${#text[@]} -gt 0 && ! -r ${text[1]} ]]; then
  echo "demo.sh: cannot read ${text[1]}" >&2
  exit 2
fi

scripts/setup.sh
echo "building ..."
cmake --preset release >/dev/null
cmake --build --preset release --target position_table landing fourier next_char sticky_mlm char_gpt

mkdir -p "$out"
run() { # run PROGRAM OPTION...
  local name=$1
  shift
  printf '\n=== %s\n' "$name"
  "build/release/examples/$name" --out "$out" --json "$out/$name.json" "$@"
}
run position_table
run landing
run fourier
run sticky_mlm
run next_char "${text[@]}"
run char_gpt "${text[@]}"

# figure PROGRAM SECTION KEY: a number of a program's JSON; section "learned" is the top level
figure() {
  LC_ALL=C awk -v section="$2" -v key="\"$3\":" '
    BEGIN { now = "learned" }
    /^  "[a-z_]+": \{/ { now = $1; gsub(/[":]/, "", now); next }
    /^  \}/ { now = "learned" }
    now == section && $1 == key { printf "%.3f", $2 }' "$out/$1.json"
}
row() { # row PROGRAM KEY TEXT
  printf '  %-46s %9s %9s %9s\n' "$3" "$(figure "$1" learned "$2")" "$(figure "$1" frozen "$2")" "$(figure "$1" none "$2")"
}
similarity() { # similarity PROGRAM
  printf '  %-46s %9s %9s\n' "$1" "$(figure "$1" before c1)" "$(figure "$1" learned c1)"
}
printf '\n=== what the position tables learned\n'
printf '  %-46s %9s %9s %9s\n' '' learned frozen none
row landing accuracy 'landing: accuracy (higher is better)'
row fourier r2 'fourier: R^2 (higher is better)'
row sticky_mlm loss 'sticky_mlm: loss in nats (lower is better)'
row next_char loss 'next_char: loss in nats (lower is better)'
row char_gpt loss 'char_gpt: loss in nats (lower is better)'
printf '\n  %-46s %9s %9s\n' 'mean cosine of neighbouring positions' before after
similarity landing
similarity fourier
similarity sticky_mlm
similarity next_char
similarity char_gpt
printf '\npictures:\n'
printf '  %s\n' "$out"/*.png
