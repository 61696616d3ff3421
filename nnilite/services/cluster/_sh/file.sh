# shellcheck shell=sh
# $2: the attempt's folder; $3: a path in it; $4: how many bytes at most. Prints the file.
cd "$1" && cd "$2" || exit 3
[ -f "./$3" ] && [ ! -h "./$3" ] || exit 3
exec head -c "$4" "./$3"
