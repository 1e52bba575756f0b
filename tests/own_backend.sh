#!/bin/sh
# own_backend.sh SOURCE PREFIX WORK CONFIG...: builds examples/own_backend outside the tree, against the Wengert installed in
# PREFIX, and has it loaded by a program that was built without it. CONFIG... are the options for configuring both.
set -eu
source=$1 prefix=$2 work=$3
shift 3
rm -rf "$work"
mkdir -p "$work"
fail() {
  echo "own_backend: $*" >&2
  exit 1
}
build() { # build SOURCE BUILD OPTION...
  from=$1 to=$2
  shift 2
  { cmake -S "$from" -B "$to" -DCMAKE_PREFIX_PATH="$prefix" "$@" && cmake --build "$to"; } >"$to.log" 2>&1 ||
    { cat "$to.log"; fail "$from does not build"; }
}
run() { # run PROGRAM [VARIABLE=VALUE...]: its output in $work/out, its messages in $work/err
  program=$1
  shift
  env -u WENGERT_BACKEND -u WENGERT_PLUGIN_PATH "$@" "$program" >"$work/out" 2>"$work/err"
}
expect() { # expect FILE LINE
  grep -qxF -e "$2" "$work/$1" || { cat "$work/out" "$work/err"; fail "no line '$2' in $1"; }
}

build "$source/examples/own_backend" "$work/own" "$@"
build "$source/tests/plugin_host" "$work/host" "$@"

# Nobody asks: nothing is loaded. Somebody asks, and the plug-in is nowhere: the error says where it was looked for.
run "$work/host/lookup" WENGERT_PLUGIN_PATH="$work/own"
expect out "gather_rows: xsimd"
[ ! -s "$work/err" ] || { cat "$work/err"; fail "the plug-in ran unasked"; }
if run "$work/host/lookup" WENGERT_BACKEND=own WENGERT_PLUGIN_PATH=/nowhere; then fail "a missing plug-in was no error"; fi
grep -q "^WENGERT_BACKEND: backend 'own' is unknown; available: xsimd, reference.*; and no libwengert_own.so in /nowhere, " \
  "$work/err" || { cat "$work/err"; fail "a missing plug-in is not explained"; }

# From the folder that the environment names: the kernel ran, and the account names it, and it alone.
run "$work/host/lookup" WENGERT_BACKEND=own WENGERT_PLUGIN_PATH="/nowhere:$work/own" || { cat "$work/err"; fail "not loaded"; }
expect err "own: row 2 was looked up most often, 2 times"
expect out "gather_rows: own"
expect out "matmul: reference"
[ "$(grep -c ': own$' "$work/out")" = 1 ] || fail "the account names more than the kernel that was written"

# From the folder beside an installed program.
mkdir -p "$work/tree/bin" "$work/tree/lib/wengert/plugins"
cp "$work/host/lookup" "$work/tree/bin"
cp "$work/own/libwengert_own.so" "$work/tree/lib/wengert/plugins"
run "$work/tree/bin/lookup" WENGERT_BACKEND=own || { cat "$work/err"; fail "not found beside the program"; }
expect out "gather_rows: own"

# A program that keeps its Wengert to itself cannot have plug-ins, and is told why.
case " $* " in
*" -DBUILD_SHARED_LIBS=ON "*) ;;
*)
  build "$source/tests/plugin_host" "$work/closed" "$@" -DCMAKE_EXE_LINKER_FLAGS=-Wl,--exclude-libs,ALL
  if run "$work/closed/lookup" WENGERT_BACKEND=own WENGERT_PLUGIN_PATH="$work/own"; then fail "it found symbols nowhere"; fi
  grep -q "the program does not export this part of Wengert" "$work/err" || { cat "$work/err"; fail "no word about symbols"; }
  run "$work/closed/lookup" || fail "it does not run without plug-ins either"
  ;;
esac
