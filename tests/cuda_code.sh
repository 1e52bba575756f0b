#!/bin/sh
# cuda_code.sh NVCC SOURCE PLUGIN WORK: what the compiler makes of the kernels. The plug-in has machine code for compute
# capability 7.5, 8.0 and 9.0, and for later ones code that the driver compiles. No kernel spills registers. The fused
# embedding reads its tables by 16 bytes through the read-only cache and writes its result past the caches.
set -eu
nvcc=$1 source=$2 plugin=$3 work=$4
mkdir -p "$work"
fail() {
  echo "cuda_code: $*" >&2
  exit 1
}
if [ -z "$nvcc" ]; then
  echo "skipped: this was built without a CUDA toolkit"
  exit 77
fi

# Fat binaries in the file, as words: a head (magic number, its own length, that of all entries), then the entries (kind: 1 for
# PTX, 2 for machine code; lengths of head and content; the architecture at the eighth word).
od -An -v -tu4 -w4 "$plugin" | awk '
  BEGIN { head = entry = -99 }
  NR > end && $1 == 3126193488 { head = NR; next }
  NR == head + 1 && $1 != 1048577 { head = -99 }
  NR == head + 2 { entry = head + 4; end = entry + $1 / 4 - 1; head = -99 }
  NR == entry { kind = $1 % 65536 == 1 ? "ptx" : "code" }
  NR == entry + 1 { bytes = $1 }
  NR == entry + 2 { bytes += $1 }
  NR == entry + 7 { print kind, $1; entry = entry + bytes / 4 < end ? entry + bytes / 4 : -99 }
' | sort -u >"$work/code"
cat "$work/code"
printf 'code 75\ncode 80\ncode 90\nptx 90\n' | cmp - "$work/code" || fail "the plug-in has code for other architectures"

for architecture in 75 80 90; do
  ptx=$work/$architecture.ptx log=$work/$architecture.log
  "$nvcc" --ptx -arch="compute_$architecture" -std=c++20 --expt-relaxed-constexpr --fmad=false -I"$source/framework/include" \
    -o "$ptx" "$source/backends/cuda/kernels.cu"
  "$nvcc" --cubin -arch="sm_$architecture" -Xptxas -v -o "$work/$architecture.cubin" "$ptx" >"$log" 2>&1 || { cat "$log"; fail "ptxas"; }
  awk '/Compiling entry function/ { kernel = $0 }
       /spill stores/ { ++kernels; if (!/ 0 bytes spill stores, 0 bytes spill loads/) { print kernel; print; spilled = 1 } }
       END { if (kernels < 50) { print "only " kernels + 0 " kernels"; exit 1 } exit spilled }' "$log" || fail "sm_$architecture spills"
  # float32, four to a pack: with and without dropout, and for either type of indices
  awk '/\.entry/ { inside = /embed_kernelIfLi4E/; kernels += inside }
       inside && /ld\.global\.nc\.v4\.(f32|b32|u32)/ { ++reads }
       inside && /st\.global\.cs\.v4\.(f32|b32|u32)/ { ++writes }
       END { print kernels + 0, "kernels,", reads + 0, "reads and", writes + 0, "writes of 16 bytes"
             exit !(kernels == 4 && reads >= 2 * kernels && writes >= kernels) }' "$ptx" || fail "sm_$architecture: embed_kernel"
done
