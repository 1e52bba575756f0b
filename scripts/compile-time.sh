#!/usr/bin/env bash
# What including Wengert costs: the median of five real compilations to an object at -O0, in seconds, of a short training
# script and of each public header alone. CXX chooses the compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

cxx=${CXX:-g++}
folders=(framework/include layers/include backends/reference/include)
flags=(-std=c++20 -O0)
for folder in "${folders[@]}"; do flags+=("-I$folder"); done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

median() { # of five compilations of $1
  for _ in 1 2 3 4 5; do
    local start=$EPOCHREALTIME
    "$cxx" "${flags[@]}" -c "$1" -o "$work/out.o"
    local end=$EPOCHREALTIME
    echo $((${end/[.,]/} - ${start/[.,]/}))
  done | sort -n | LC_ALL=C awk 'NR == 3 { printf "%.2f\n", $1 / 1e6 }'
}

cat >"$work/script.cpp" <<'END'
#include <wengert/wengert.hpp>
namespace wg = wengert;

int main() {
  wg::layers::TransformerEmbedding embed({.vocab_size = 100, .max_seq_len = 16, .embed_dim = 32, .dropout = 0.1});
  wg::optim::AdamW optimizer(embed.named_parameters(), {.lr = 3e-4});
  const wg::Tensor ids = wg::tensor<std::int64_t>({{15, 3, 9}, {4, 4, 0}});
  for (int step = 0; step < 10; ++step) {
    wg::Tape tape;
    tape.backward(wg::mean(wg::square(embed(ids))));
    optimizer.step();
    optimizer.zero_grad();
  }
}
END
printf '%-40s %s s\n' "training script, all of Wengert" "$(median "$work/script.cpp")"
[[ "${1:-}" == --headers ]] || exit 0
for folder in "${folders[@]}"; do
  find "$folder" -name '*.hpp' -printf '%P\n' | sort | while read -r header; do
    echo "#include <$header>" >"$work/header.cpp"
    printf '%-40s %s s\n' "$header" "$(median "$work/header.cpp")"
  done
done
