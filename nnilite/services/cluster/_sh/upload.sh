# shellcheck shell=sh
# $2: the file's name in the cache; standard input: its content.
umask 077
cd "$1/cache" || exit
draft=".$2.$$"
trap 'rm -f "$draft"' EXIT
cat >"$draft" && mv -f "$draft" "$2"
