#!/bin/sh
# options.sh PROGRAM: a bad option of an example ends it with a message that says what is allowed.
set -eu
program=$1
refuse() { # refuse "OPTIONS" PATTERN
  # shellcheck disable=SC2086  # options are words
  if text=$("$program" $1 2>&1); then
    echo "accepted: $1"
    exit 1
  fi
  echo "$text" | grep -qE -e "$2" || { echo "$1: does not say $2: $text"; exit 1; }
}
refuse "--backend abacus" 'abacus.*reference'
refuse "--steps 0" '--steps.*0.*1'
refuse "--steps many" '--steps.*many'
refuse "--seed -1" '--seed'
refuse "--threads 0" '--threads.*0.*1'
refuse "--speed 3" '--speed'
refuse "--steps 1 --out /dev/null/x" '/dev/null/x'
WENGERT_BACKEND=abacus refuse "--steps 1" 'abacus.*reference'
"$program" --help | grep -q -e --json
