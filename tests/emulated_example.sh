#!/bin/sh
# emulated_example.sh PROGRAM WORK "OPTIONS" CONDITION...: runs an example on the CUDA kernels in the emulator, which it
# loads as a plug-in, and holds its figures against the CONDITIONs as example.sh does. Every loss of every run that it
# writes down must be within 1e-4 of the reference backend's.
set -eu
program=$1 work=$2 options=$3
shift 3
here=$(dirname "$0")
sh "$here/example.sh" "$program" "$work/reference" "$options --threads 1 --backend reference"
sh "$here/example.sh" "$program" "$work/emulated" "$options --threads 1 --backend cuda-emulated" "$@"

name=$(basename "$program")
paste -d, "$work/reference/out/$name.csv" "$work/emulated/out/$name.csv" | LC_ALL=C awk -F, '
  NR > 1 {
    columns = NF / 2
    for (i = 2; i <= columns; ++i) {
      apart = $i - $(i + columns)
      if (apart < 0) apart = -apart
      if (apart > most) most = apart
      if (!(apart <= 1e-4)) { print "step " $1 ": losses " $i " and " $(i + columns); bad = 1 }
      ++count
    }
  }
  END { printf "%d losses within %.2g\n", count, most; exit bad || count < 15 }'
