#!/bin/sh
# cuda_driver.sh PROGRAMS PLUGINS COMPILER WORK: what programs say and do on machines without a usable CUDA driver (BK-06).
# PROGRAMS holds plugin_lookup and plugin_leaving, PLUGINS the plug-in, COMPILER makes stand-ins for the driver.
set -eu
programs=$1 plugins=$2 compiler=$3 work=$4
rm -rf "$work"
mkdir -p "$work"
fail() {
  echo "cuda_driver: $*" >&2
  exit 1
}
# refused DRIVER PLUGIN_PATH PATTERN: with the folder DRIVER before all others, asking for cuda is an error with PATTERN in its
# text, and a program that goes on without cuda works, and leaves in good order.
refused() {
  if LD_LIBRARY_PATH=$1 WENGERT_PLUGIN_PATH=$2 WENGERT_BACKEND=cuda "$programs/plugin_lookup" >"$work/out" 2>&1; then
    fail "cuda was accepted: $3"
  fi
  grep -qE "^WENGERT_BACKEND: .*$3" "$work/out" || { cat "$work/out"; fail "no word of: $3"; }
  LD_LIBRARY_PATH=$1 WENGERT_PLUGIN_PATH=$2 "$programs/plugin_leaving" >"$work/out" 2>&1 || { cat "$work/out"; fail "status $?: $3"; }
  grep -qE "$3" "$work/out" || { cat "$work/out"; fail "no reason: $3"; }
  grep -q '^xsimd: [01]\.' "$work/out" || { cat "$work/out"; fail "xsimd does not work: $3"; }
}
# driver NAME VERSION INIT: a library in the driver's place whose cuInit returns INIT and which sees no devices
driver() {
  mkdir -p "$work/$1"
  cat >"$work/driver.cpp" <<END
#include <cstring>
extern "C" {
int cuInit(unsigned) { return $3; }
int cuDriverGetVersion(int* version) { return *version = $2, 0; }
int cuDeviceGetCount(int* count) { return *count = 0, 0; }
int cuGetProcAddress_v2(const char*, void**, int, unsigned long, void*);
int cuGetProcAddress(const char* name, void** function, int version, unsigned long flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}
int cuGetProcAddress_v2(const char* name, void** function, int, unsigned long, void*) {
  *function = !std::strcmp(name, "cuInit")               ? (void*)cuInit
              : !std::strcmp(name, "cuDriverGetVersion") ? (void*)cuDriverGetVersion
              : !std::strcmp(name, "cuDeviceGetCount")   ? (void*)cuDeviceGetCount
              : !std::strcmp(name, "cuGetProcAddress")   ? (void*)cuGetProcAddress_v2
                                                         : nullptr;
  return *function ? 0 : 500;  // CUDA_ERROR_NOT_FOUND
}
}
END
  "$compiler" -shared -fPIC -o "$work/$1/libcuda.so.1" "$work/driver.cpp" -ldl
}

# The plug-in's folder is hidden: its programs stand where no folder of plug-ins is.
mkdir "$work/alone"
cp "$programs/plugin_lookup" "$programs/plugin_leaving" "$work/alone"
there=$programs programs=$work/alone
refused "" /nowhere "backend 'cuda' is unknown; available: xsimd, reference.*; and no libwengert_cuda.so in /nowhere, "
programs=$there

if [ ! -e "$plugins/libwengert_cuda.so" ]; then
  echo "skipped: there is no libwengert_cuda.so, for it was built without a CUDA toolkit"
  exit 77
fi
needs='required: a driver for CUDA [0-9.]+ and a device of compute capability 7.5 or later; found:'
if ! ldconfig -p | grep -q 'libcuda\.so\.1 '; then
  refused "" "$plugins" "cuda: libcuda.so.1: cannot open shared object file.*; $needs no driver"
fi
driver old 11080 0
refused "$work/old" "$plugins" "cuda: CUDA driver version is insufficient .*; $needs a driver for CUDA 11.8"
required=$(sed -n 's/.*required: a driver for CUDA \([0-9]*\)\.\([0-9]\).*/\1 \2/p' "$work/out")
required=$((${required% *} * 1000 + ${required#* } * 10))
driver no_devices "$required" 100
refused "$work/no_devices" "$plugins" "cuda: no CUDA-capable device is detected; $needs a driver for CUDA"
driver broken "$required" 999
refused "$work/broken" "$plugins" "cuda: unknown error; $needs a driver for CUDA"
driver stub "$required" 34
refused "$work/stub" "$plugins" "cuda: CUDA driver is a stub library; $needs a driver for CUDA"
driver empty "$required" 0
refused "$work/empty" "$plugins" "cuda: .*; $needs a driver for CUDA"
