# shellcheck shell=sh disable=SC2088
# $1: the folder; $2: how many days unused packages stay; the rest: files of the cache that are needed.
# Prints its absolute name, and for each of these files its size, or "-".
umask 077
case $1 in /*) root=$1;; "~/"*) root=$HOME/${1#??};; *) root=$HOME/$1;; esac
days=$2
shift 2
mkdir -p "$root/cache" || exit
cd "$root" || exit
for name in "$@"; do
    [ ! -e "cache/$name" ] || touch "cache/$name"
done
find cache -maxdepth 1 -type f -mtime "+$days" -exec rm -f {} + 2>/dev/null
for name in "$@"; do
    if [ -s "cache/$name" ]; then wc -c <"cache/$name"; else echo -; fi
done
pwd -P
