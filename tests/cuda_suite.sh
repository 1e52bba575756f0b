#!/bin/sh
# cuda_suite.sh PROGRAMS: the whole suite on the backend cuda, where there is a device.
set -eu
export WENGERT_BACKEND=cuda
if ! "$1/plugin_lookup" >/dev/null 2>"$1/cuda_suite.log" && grep -E 'is unknown|required: ' "$1/cuda_suite.log"; then
  echo "skipped: no device"
  exit 77
fi
exec "$1/wengert_tests"
