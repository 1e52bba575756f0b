#!/usr/bin/env bash
# The CUDA backend on a machine with a device, in less than six minutes: the bit tests, the suite, compute-sanitizer on the
# embedding stack, leaving the process, and benchmarks beside PyTorch where a python3 has it. Leaves gpu-check.json and
# gpu-check.txt, a table, in DIR.
#
#   gpu-check.sh --pack                      where everything is installed: builds, and puts into build/gpu-check what a
#                                            machine without our packages needs: programs, plug-in, libraries
#   gpu-check.sh [--out DIR] [--backend B]   takes build/gpu-check if it is there, else builds; B instead of cuda
#                                            (xsimd, say) tries this script where there is no device
set -euo pipefail
cd "$(dirname "$0")/.."

out=$PWD/build backend=cuda pack=
while [[ $# -gt 0 ]]; do
  case $1 in
    --pack) pack=1 && shift ;;
    --out) out=$2 && shift 2 ;;
    --backend) backend=$2 && shift 2 ;;
    *) echo "usage: gpu-check.sh [--pack] [--out DIR] [--backend NAME]" >&2 && exit 2 ;;
  esac
done
programs=(tests/wengert_tests tests/plugin_lookup tests/plugin_leaving benchmarks/bench_device)

build() { # into build/gpu; programs find libraries in the folder lib beside their own, and those find theirs there too
  scripts/setup.sh
  # shellcheck disable=SC2016  # the linker's variable
  cmake --preset release -B build/gpu -DWENGERT_CUDA=ON -DDNNL_INCLUDE_DIR=OFF -DCMAKE_BUILD_RPATH='$ORIGIN/../lib' \
    -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags >/dev/null
  cmake --build build/gpu --target wengert_cuda "${programs[@]##*/}"
}

if [[ -n $pack ]]; then
  build
  rm -rf build/gpu-check
  mkdir -p build/gpu-check/{tests,benchmarks,lib/wengert/plugins}
  for program in "${programs[@]}"; do
    install -s "build/gpu/$program" "build/gpu-check/$program"
  done
  find build/gpu -path '*/wengert/plugins/libwengert_cuda.so' -exec install -s {} build/gpu-check/lib/wengert/plugins \;
  cp benchmarks/torch_*.py build/gpu-check/benchmarks
  # All libraries but those of the compiler and of the system, which every machine has.
  ldd "${programs[@]/#/build/gpu/}" | awk '/=> \// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so' | xargs -I{} cp -L {} build/gpu-check/lib
  du -sh build/gpu-check
  exit
fi

at=build/gpu-check
if [[ ! -d $at ]]; then
  build
  at=build/gpu
fi
mkdir -p "$out"
export OMP_WAIT_POLICY=passive WENGERT_BACKEND=$backend
machine=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1) || machine="no device"
# cuBLAS where no system folder has it: in a toolkit, or in a Python package.
if ! ldconfig -p | grep -q libcublas; then
  cublas=$(find -L /usr/local/cuda*/ /opt /usr/lib/python3 -name 'libcublas.so.*' -print -quit 2>/dev/null || true)
  [[ -z $cublas ]] || export LD_LIBRARY_PATH=${cublas%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi

failed=0 json=
check() { # check NAME SECONDS COMMAND...
  local name=$1 limit=$2 start=$SECONDS status=0 result
  shift 2
  timeout "$limit" "$@" >"$out/$name.log" 2>&1 || status=$?
  case $status in
    0) result=passed ;;
    124) result="not finished in $limit s" ;;
    126 | 127) result="no such program here" ;;
    *) result="FAILED with status $status" failed=1 ;;
  esac
  [[ $result != FAILED* ]] || tail -n 40 "$out/$name.log"
  printf '%-12s %s (%s s)\n' "$name" "$result" $((SECONDS - start)) | tee -a "$out/gpu-check.txt"
  json+="${json:+, }\"$name\": \"$result\""
}
tests=("$at/tests/wengert_tests" "--test-case-exclude=docs/bits.md*")
stack='--test-case=embed_dropout*,gather_rows*,merge_rows*,keep_mask*,sgd_step*,adam_step*'
# These look for the tree that they were built in, and ask nothing of a device.
others=$(grep -lE 'data_file\(|WENGERT_TEST_PLUGINS' tests/*_test.cpp | sed 's,^tests/,*,' | paste -sd,)
# shellcheck disable=SC2016  # the inner shell's variable
leave=(bash -c 'for _ in 1 2 3 4 5 6 7 8 9 10; do "$0" || exit; done' "$at/tests/plugin_leaving")

printf '%s, backend %s\n\n' "$machine" "$backend" | tee "$out/gpu-check.txt"
check backend 15 "$at/tests/plugin_lookup"
rm -f "$out/benchmarks.json"
if [[ $failed == 0 ]]; then
  check bits 40 "${tests[@]}" "--source-file=*stack_test.cpp,*bits_test.cpp"
  check suite 90 "${tests[@]}" "--source-file-exclude=$others"
  check leaving 20 "${leave[@]}"
  sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  check memcheck 40 "$sanitizer" --tool memcheck --error-exitcode 9 "${tests[@]}" "$stack"
  check racecheck 25 "$sanitizer" --tool racecheck --error-exitcode 9 "${tests[@]}" "--test-case=embed_dropout*"
  python=()
  if timeout 30 python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then python=(--python python3); fi
  check benchmarks 100 "$at/benchmarks/bench_device" --backend "$backend" --json "$out/benchmarks.json" "${python[@]}"
  tee -a "$out/gpu-check.txt" <"$out/benchmarks.log"
fi
printf '{"machine": "%s", "backend": "%s", "checks": {%s}, "benchmarks": %s}\n' "$machine" "$backend" "$json" \
  "$(cat "$out/benchmarks.json" 2>/dev/null || echo null)" >"$out/gpu-check.json"
exit $failed
