# shellcheck shell=sh disable=SC2088
# $1: the folder; $2: how many days unused packages stay; the rest: files of the cache that are needed.
# Prints its absolute name, and for each of these files its size, or "-".
umask 077
case $1 in /*) root=$1;; "~/"*) root=$HOME/${1#??};; *) root=$HOME/$1;; esac
days=$2
shift 2
# The rule is that of `nnilite._keeper.folder_owner`, for a folder of another user or below one, as in /tmp.
owners() { stat -c %u -- "$1"; stat -L -c %u -- "$1"; }
strangers() { grep -vx -e 0 -e "$(id -u)"; }
owners_where_all_may_write() {
    place=$1
    until [ "$place" = / ]; do
        above=$(dirname "$place")
        [ -z "$(find -H "$above" -maxdepth 0 -perm -0002)" ] || owners "$place"
        place=$above
    done
}
new=
[ -d "$root" ] || new=1
mkdir -p "$root" || exit
if [ -n "$new" ] || owners "$root" | strangers >/dev/null; then
    found=$({ owners_where_all_may_write "$root"; owners_where_all_may_write "$(cd "$root" && pwd -P)"; } | strangers)
    if [ -n "$found" ]; then
        probe=$(mktemp -d "$root/.nnilite-owner-XXXXXX") || exit
        if echo "$found" | grep -qvx "$(stat -c %u "$probe")"; then other=1; fi
        rmdir "$probe"
        if [ -n "${other-}" ]; then
            echo "$root, or a folder above it, is another user's, who could replace what trials run" >&2
            exit 1
        fi
    fi
fi
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
