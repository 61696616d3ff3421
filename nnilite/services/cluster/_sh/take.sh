# shellcheck shell=sh
# $2: a limit in seconds; standard input: names of files, each with a zero byte. Prints an archive of those that are
# there, and are small files: a trial may have put a link or anything else in their place.
cd "$1" || exit 71
timeout -s KILL "$2" sh -c '
    xargs -0 -r sh -c '\''exec find -P "$@" -maxdepth 0 -type f -size -2000 -print0'\'' nnilite 2>/dev/null         | tar -cf - --ignore-failed-read --no-recursion --null -T - 2>/dev/null
    true'
exit $?
