# shellcheck shell=sh
# shellcheck disable=SC2016  # the inner shell expands these
# $2: a limit in seconds; standard input: lines of offset, length and name. Prints these pieces one after the other.
cd "$1" || exit
timeout -s KILL "$2" sh -c 'while read -r offset length name; do
    [ -f "$name" ] && [ ! -h "$name" ] && tail -c "+$((offset + 1))" "$name" | head -c "$length"
done'
exit $?
