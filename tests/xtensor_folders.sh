#!/usr/bin/env bash
# xtensor_folders.sh COMPILER SOURCE WORK XTENSOR: xtensor 0.26 moved its headers into folders. Lays out the headers of the
# installed version (XTENSOR: the folder with xarray.hpp) that way, and compiles everything that includes xtensor against them.
set -euo pipefail
compiler=$1 source=$2 work=$3 xtensor=$4
[[ -e $xtensor/xarray.hpp ]] || { echo "xtensor_folders: the installed xtensor has folders already: nothing to try"; exit 0; }
rm -rf "$work"

script=''
declare -A folder_of
place() { # FOLDER HEADER...
  local folder=$1 header
  shift
  for header; do
    folder_of[$header]=$folder
    script+="s#(include +[<\"])(xtensor/)?$header\\.hpp#\\1xtensor/$folder/$header.hpp#;"
  done
}
place chunk xchunked_{array,assign,view}
place containers xadapt xarray xbuffer_adaptor xcontainer xfixed xscalar xstorage xtensor
place core xaccessible xassign xeval xexpression{,_traits} xfunction xiterable xiterator xlayout xmath \
  xmultiindex_iterator xnoalias xoperation xsemantic xshape xstrides xtensor_config xtensor_forward xvectorize
place generators xbuilder xgenerator xrandom
place io xcsv xinfo xio xjson xmime xnpy
place misc xcomplex xexpression_holder xhistogram xmanipulation xpad xset_operation xsort
place optional xoptional{,_assembly,_assembly_base,_assembly_storage}
place reducers xaccumulator xblockwise_reducer{,_functors} xnorm xreducer
place utils xexception xtensor_simd xutils
place views xaxis_iterator xaxis_slice_iterator xbroadcast xdynamic_view xfunctor_view xindex_view xmasked_view \
  xoffset_view xrepeat xslice xstrided_view{,_base} xview{,_utils}

for header in "${!folder_of[@]}"; do
  mkdir -p "$work/xtensor/${folder_of[$header]}"
  sed -E "$script" "$xtensor/$header.hpp" >"$work/xtensor/${folder_of[$header]}/$header.hpp"
done

mapfile -t files < <(grep -rlE 'xtensor_headers|arrays\.hpp|wengert/xtensor\.hpp' --include='*.cpp' "$source"/{backends,tests})
[[ ${#files[@]} -gt 0 ]]
for file in "${files[@]}"; do
  "$compiler" -std=c++20 -fsyntax-only -isystem "$work" -I"$source"/{framework,layers,backends/reference}/include -I"$source"/backends -I"$source"/tests -H "$file" 2>"$work/headers" ||
    { grep -A3 'error:' "$work/headers"; exit 1; }
  if grep -E "^\.+ .*/xtensor/" "$work/headers" | grep -vF " $work/"; then
    echo "$file took the old headers"
    exit 1
  fi
  echo "${file#"$source"/}: $(grep -cF " $work/" "$work/headers") headers in folders"
done
