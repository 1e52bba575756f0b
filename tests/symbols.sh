#!/bin/sh
# symbols.sh PROGRAM OBJECT...: of an object file that is compiled for one architecture, the linker must see the entry alone.
# Anything else, a weak function above all, could be taken by the linker for everybody, and crash on a processor without it. So no
# weak function of the linked program may hold an AVX instruction. The objects must hold what they were compiled for.
set -eu
[ $# -gt 1 ] || { echo "usage: symbols.sh PROGRAM OBJECT..." >&2; exit 2; }
program=$1
shift
disassemble() { objdump --disassemble --no-show-raw-insn "$1"; }
for object in "$@"; do
  name=$(basename "$object" .o)
  seen=$(nm --defined-only --extern-only --format=posix "$object" | awk '{ print $1 }')
  if [ "$seen" != "wengert_$name" ]; then
    echo "$object: the linker sees more than wengert_$name:"
    echo "$seen"
    exit 1
  fi
  case $name in
    *sse2) missing=$(disassemble "$object" | grep -c -E '%[yz]mm|vfmadd' || true)
           [ "$missing" = 0 ] || { echo "$object: $missing AVX instructions in the baseline"; exit 1; } ;;
    *avx2) disassemble "$object" | grep -q 'vfmadd.*%ymm' || { echo "$object: no fused multiply-add"; exit 1; } ;;
    *avx512) disassemble "$object" | grep -q 'vfmadd.*%zmm' || { echo "$object: no fused multiply-add"; exit 1; } ;;
  esac
done
weak=$(mktemp)
trap 'rm -f "$weak"' EXIT
nm --defined-only --format=posix "$program" | awk '$2 == "W" || $2 == "V" || $2 == "u" { print $1 }' >"$weak"
[ -s "$weak" ] || { echo "$program: no weak symbols at all; is it stripped?"; exit 1; }
bad=$(disassemble "$program" | awk -v weak="$weak" '
  BEGIN { while ((getline name < weak) > 0) is_weak[name] = 1 }
  /^[0-9a-f]+ <.*>:$/ { name = $2; sub(/^</, "", name); sub(/>:$/, "", name); next }
  is_weak[name] && ($2 ~ /^v/ && $2 !~ /^ver/) { print name ": " $2 }' | sort -u)
[ -z "$bad" ] || { echo "$program: weak functions with AVX instructions:"; echo "$bad"; exit 1; }
echo "each architecture shows its entry alone"
