#!/bin/sh
# example_output.sh FOLDER WORK: what the examples print, write, and leave alone.
# shellcheck disable=SC2086  # $tables is several words
set -eu
programs=$1 work=$2 data=$(cd "$(dirname "$0")/data" && pwd)
rm -rf "$work"
mkdir -p "$work/empty"
cd "$work/empty"
fail() { echo "$1"; exit 1; }
has() { # has FILE KEY...: every key stands in the JSON file
  file=$1
  shift
  for key; do grep -q "\"$key\":" "$file" || fail "$file: no $key"; done
}

# The chapter's rows.
"$programs/position_table" --steps 1 --json ../table.json >../table.txt
for row in "0: 0.062 -0.017 0.081 0.19 -0.029" "1: 0.102 0.17 -0.009 0.125 0.045" "2: 0.012 -0.063 -0.194 0.009 -0.133" \
  "3: 0.027 -0.156 0.022 0.048 -0.11" "4: 0.158 -0.088 0.055 0.097 -0.116"; do
  grep -q "^row $row " ../table.txt || fail "position_table does not print row $row"
done
if "$programs/position_table" --seed 4294967296 2>../error.txt; then fail "a seed that NumPy does not take"; fi
grep -q 'position_table: --seed: 4294967296 is outside' ../error.txt || fail "$(cat ../error.txt)"

# One step is a run like any other; the figures that --help promises are there.
tables="c1 c2 c4 c8 pc2 pc8 mantel adj"
"$programs/landing" --steps 1 --json ../landing.json >../landing.txt 2>../landing.log
has ../landing.json accuracy loss c16 seconds before frozen none $tables
"$programs/fourier" --steps 1 --json ../fourier.json >/dev/null 2>&1
has ../fourier.json r2 loss c16 seconds before frozen none $tables
seq 1000 >../text.txt
"$programs/next_char" --steps 1 --text ../text.txt --json ../next_char.json >/dev/null 2>&1
has ../next_char.json accuracy loss seconds before frozen none $tables
"$programs/sticky_mlm" --steps 1 --json ../sticky_mlm.json >/dev/null 2>&1
has ../sticky_mlm.json accuracy loss near c16 seconds bayes_loss bayes_accuracy before sinusoidal frozen none $tables
"$programs/char_gpt" --steps 1 --text ../text.txt --json ../char_gpt.json >../char_gpt.txt 2>/dev/null
has ../char_gpt.json accuracy loss c16 seconds before sinusoidal frozen none $tables
[ "$(sed '1,/^the model writes:$/d' ../char_gpt.txt | tr -cd '0-9\n' | wc -c)" -ge 400 ] || fail "char_gpt writes nothing"

# Backends side by side: within the tolerance, or an error.
curves() { # curves "OPTIONS" LINE: fails, and says LINE
  if "$programs/char_gpt" --steps 20 --text ../text.txt $1 >../curves.txt 2>../error.txt; then fail "accepted: $1"; fi
  grep -q "$2" ../error.txt || fail "$(cat ../error.txt)"
}
"$programs/char_gpt" --steps 3 --text ../text.txt --backends xsimd,reference --json ../backends.json >../curves.txt 2>/dev/null
has ../backends.json reference
grep -q '^reference differs from xsimd by at most [0-9.]*e[-+][0-9]* at 3 steps; tolerance 0.001$' ../curves.txt || fail "$(cat ../curves.txt)"
curves "--backends xsimd,reference --tolerance 0" '^char_gpt: --tolerance: reference differs from xsimd by .*, more than 0$'
curves "--backends xsimd,abacus" abacus
curves "--backends xsimd,reference --backend xsimd" excludes
curves "--backends xsimd" backends
curves "--backends xsimd,xsimd" twice
curves "--tolerance 1" backends
curves "--backends xsimd,reference --tolerance nan" 'a tolerance is at least 0, not nan'

grep -q '"c16"' ../next_char.json && fail "16 positions have none that are 16 apart"

# Plain lines where stderr is no terminal, a table with its columns on stdout.
grep -q '^landing, learned  1/1  loss ' ../landing.log || fail "no progress: $(cat ../landing.log)"
grep -q '^ *learned *before *frozen *none$' ../landing.txt || fail "no columns: $(cat ../landing.txt)"

# The same seed, the same figures, whether the controls run beside it or after it.
for threads in 1 2; do
  "$programs/landing" --steps 20 --seed 3 --threads $threads --json ../threads.json >/dev/null 2>&1
  grep -v '"seconds"' ../threads.json >"../threads$threads.json"
done
cmp ../threads1.json ../threads2.json || fail "threads change the figures"
[ -z "$(ls)" ] || fail "written without being asked: $(ls)"

# Text that cannot be used.
refuse() { # refuse PATH REASON
  if "$programs/next_char" --steps 1 --text "$1" >/dev/null 2>../error.txt; then fail "accepted: $1"; fi
  grep -q "^next_char: text: cannot read \"$1\": $2" ../error.txt || fail "$(cat ../error.txt)"
}
refuse none 'no such file'
refuse . 'the folder holds no regular file'
printf 'much too short' >../short.txt
refuse ../short.txt 'too short: 12 characters to train on and 2 to validate with, needs 17 of each'
: >../nothing.txt
refuse ../nothing.txt 'the file is empty'

# Models and sentences that do not fit.
refuse_model() { # refuse_model FILE "OPTIONS" REASON
  if "$programs/minilm" --weights "$1" $2 >/dev/null 2>../error.txt; then fail "accepted: $1 $2"; fi
  grep -q "^minilm: $3" ../error.txt || fail "$(cat ../error.txt)"
}
refuse_model none "" 'safetensors: cannot read "none"'
refuse_model "$data/gpt2.safetensors" "" '".*gpt2.safetensors" is no BERT: it has nothing that becomes embed.word_embeddings.weight'
refuse_model "$data/bert.safetensors" "" '--heads: 8 dimensions are not a multiple of 12 heads'
refuse_model "$data/bert.safetensors" "--heads 2 --ids 1,2x" '--ids: "2x" is no token id'
refuse_model "$data/bert.safetensors" "--heads 2 --ids ," '--ids: a sentence without tokens'
refuse_model "$data/bert.safetensors" "--heads 2 --ids 1,2,11" '.*id 11 at \[0, 2\] is outside \[0, 11)'
refuse_model "$data/bert.safetensors" "--heads 2 --ids 1,2,3,4,5,6,7" '.*length 7 = 7 exceeds the 6 positions'
refuse_model "$data/bert.safetensors" "--heads 2 --ids 1 2" 'The following argument was not expected: 2'
