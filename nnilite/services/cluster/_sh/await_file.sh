# shellcheck shell=sh
# $2: how often to look; $3: the pause after each look, in seconds; $4 ...: names of files. Prints those that are there as
# soon as there is one, or nothing.
cd "$1" || exit 71
left=$2 pause=$3 found=
shift 3
while :; do
    for name do [ ! -e "$name" ] || { echo "$name"; found=1; }; done
    left=$((left - 1))
    if [ -n "$found" ] || [ $left -le 0 ]; then exit 0; fi
    sleep "$pause" || exit
done
