#!/bin/sh
# headers.sh COMPILER WORK FOLDER...: every public header below the include FOLDERs compiles alone, and pulls in nothing heavy.
set -eu
compiler=$1 work=$2
shift 2
mkdir -p "$work"
includes='' count=0 failed=0
for folder; do includes="$includes -I$folder"; done
third_party='/(xtensor|xtl|xsimd|fmt|cairo|nlohmann|CLI)/|/(dnnl|omp|cuda)[a-z_]*\.hp*$'
standard='/c\+\+/[0-9.]+/(filesystem|thread|chrono|map|iostream|sstream|fstream|regex|iomanip|future|format|ranges)$'

for folder; do
  for header in $(cd "$folder" && find . -name '*.hpp' | sed 's,^\./,,' | sort); do
    case $header in
      wengert/xtensor.hpp | wengert/detail/xtensor_headers.hpp) forbidden='/(xsimd|fmt|cairo)/' ;; # the bridge to xtensor
      *) forbidden="$third_party|$standard" ;;
    esac
    echo "#include <$header>" >"$work/header.cpp"
    # shellcheck disable=SC2086  # one word for each folder
    if ! "$compiler" -std=c++20 -Wall -Wextra -Wpedantic -Wshadow -Werror $includes -fsyntax-only -MD -MF "$work/header.d" "$work/header.cpp"; then
      echo "$header does not compile alone"
      failed=1
    elif tr ' ' '\n' <"$work/header.d" | grep -v '/include/wengert/' | grep -E "$forbidden" >"$work/heavy"; then
      echo "$header pulls in:"
      sed 's/^/  /' "$work/heavy"
      failed=1
    fi
    count=$((count + 1))
  done
done
echo "$count headers"
[ "$count" -gt 10 ] || failed=1 # a wrong folder must not look like success
exit $failed
