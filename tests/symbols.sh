#!/bin/sh
# symbols.sh OBJECT...: of an object file that is compiled for one architecture, the linker must see the entry alone. Anything
# else, a weak function above all, could be taken by the linker for everybody, and crash on a processor without it.
set -eu
[ $# -gt 0 ] || { echo "symbols.sh: no object file named" >&2; exit 2; }
for object in "$@"; do
  name=$(basename "$object" .o)
  seen=$(nm --defined-only --extern-only --format=posix "$object" | awk '{ print $1 }')
  if [ "$seen" != "wengert_$name" ]; then
    echo "$object: the linker sees more than wengert_$name:"
    echo "$seen"
    exit 1
  fi
done
echo "each architecture shows its entry alone"
