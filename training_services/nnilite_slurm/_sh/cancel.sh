# shellcheck shell=sh
# shellcheck disable=SC2016  # the inner shell expands these
# $2: the attempt's folder; $3: its job, or "". A job that waits is taken back; a keeper that runs gets SIGTERM.
cd "$1" || exit 0
timeout -s KILL 5 sh -c 'cd "$1" && : >canceled' nnilite "$2" 2>/dev/null
case $? in 0 | 124 | 137) ;; *) exit 0 ;; esac
[ -n "$3" ] || exit 0
timeout 15 scancel --state=PENDING "$3" </dev/null
timeout 15 scancel --state=RUNNING --batch --signal=TERM "$3" </dev/null
true
