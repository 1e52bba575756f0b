#!/bin/sh
# arrows.sh SOURCE: who may include whom. framework knows nobody, layers and backends know the framework, and what is
# third-party stays inside the .cpp files that need it.
set -eu
cd "$1"
failed=0
# forbid WHAT PATTERN FOLDER...: no #include in FOLDER... may match PATTERN
forbid() {
  what=$1 pattern=$2
  shift 2
  if grep -rnE --include='*.hpp' --include='*.cpp' --include='*.cu*' --exclude=wengert.hpp "^ *# *include *[<\"]$pattern" "$@"; then
    echo "^ $what"
    failed=1
  fi
}
layers='(\.\./)*(wengert/)?layers'
backends='(\.\./)*(wengert/)?(backends|reference|builtin)'
upper='(\.\./)*(wengert/)?(optim|report|data|io)[/.]'

forbid "the framework knows no layer" "$layers" framework
forbid "the framework knows no backend" "$backends" framework
forbid "the core knows nothing that is built on it" "$upper" framework/core
forbid "layers know the framework's core only" "($backends|$upper)" layers
forbid "backends know the framework's core only" "($layers|$upper)" backends
forbid "nothing that is shipped knows tests and examples" '(\.\./)*(doctest|tests|examples)/' framework layers backends
forbid "xtensor has one door" '(xtensor/|xtl/)' layers backends framework/core framework/optim framework/report framework/data framework/io
forbid "CUDA stays in its folder" '(cuda|cub|cublas)[_a-z0-9]*[/.]' framework layers backends/reference backends/xsimd backends/onednn
forbid "no fmt in headers" 'fmt/' framework/include layers/include
forbid "no JSON in headers" 'nlohmann/' framework/include layers/include framework/io/*.hpp
exit $failed
