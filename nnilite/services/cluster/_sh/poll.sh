# shellcheck shell=sh
# $2: a mark; $3: a limit in seconds for the files; $4 ...: the command that lists jobs; standard input: names of files,
# each with a zero byte at its end.
# The scheduler is asked before the files: the other way round, an end in between looks like a loss. While it is away,
# its command may try again for as long as a minute, and the files are wanted all the same.
# The mark and the exit status end the list; then come the sizes of those files that are there. The exit status of
# `timeout` says whether a file hangs; the shell has to hand it on, for SSH knows no exit status of what a signal ends.
cd "$1" || exit 71
mark=$2 limit=$3
shift 3
timeout 15 "$@" </dev/null
printf '\n%s %d\n' "$mark" $?
timeout -s KILL "$limit" xargs -0 -r stat --printf='%s %n\0' -- 2>/dev/null
exit $?
