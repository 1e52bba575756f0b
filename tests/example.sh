#!/bin/sh
# example.sh PROGRAM WORK "OPTIONS" CONDITION...: runs an example and holds its figures against the CONDITIONs, such as
# "accuracy > 0.97" or "none.loss - loss > 0.6": keys of its JSON, those of an object within written with a dot.
set -eu
program=$1 work=$2 options=$3
shift 3
rm -rf "$work"
mkdir -p "$work"
# shellcheck disable=SC2086  # options are words
"$program" $options --out "$work/out" --json "$work/figures.json"

for condition; do
  LC_ALL=C awk -v condition="$condition" '
    function value(word) {
      if (word ~ /^-?[0-9.]+$/) return word + 0
      if (!(word in figures)) { print "no figure " word; broken = 1; exit 1 }
      return figures[word]
    }
    /^  "[a-z_0-9]+": \{/ { gsub(/[" :{]/, ""); section = $0 "."; next }
    /^  \}/ { section = ""; next }
    /^ +"/ { line = $0; gsub(/[", ]/, "", line); split(line, part, ":"); figures[section part[1]] = part[2] + 0 }
    END {
      if (broken) exit 1
      n = split(condition, word, " ")
      left = value(word[1])
      if (n == 5) {
        right = value(word[3])
        if (word[2] == "-") left -= right
        else if (word[2] == "/") left /= right
        else { print "cannot read: " condition; exit 1 }
      } else if (n != 3) { print "cannot read: " condition; exit 1 }
      limit = value(word[n])
      ok = word[n - 1] == ">" ? left > limit : word[n - 1] == "<" ? left < limit : left == limit
      printf "%s: %s (%.6g)\n", ok ? "holds" : "FAILS", condition, left
      exit !ok
    }' "$work/figures.json" || failed=1
done

# A picture that is one, and a curve with numbers in it.
for picture in "$work"/out/*.png; do
  head -c 8 "$picture" | od -An -tx1 | grep -q '89 50 4e 47 0d 0a 1a 0a' || { echo "$picture is no PNG"; failed=1; }
done
for curve in "$work"/out/*.csv; do
  [ "$curve" = "$work/out/*.csv" ] || [ "$(wc -l <"$curve")" -gt 5 ] || { echo "$curve is too short"; failed=1; }
done
exit "${failed:-0}"
