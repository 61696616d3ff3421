# shellcheck shell=sh
# Standard input: lines of offset, length and name. Prints these pieces one after the other.
cd "$1" || exit
while read -r offset length name; do
    [ -f "$name" ] && [ ! -h "$name" ] && tail -c "+$((offset + 1))" "$name" | head -c "$length"
done
