# shellcheck shell=sh
# $1 ...: programs. Prints those that are not there.
for program in "$@"; do command -v "$program" >/dev/null 2>&1 || echo "$program"; done
