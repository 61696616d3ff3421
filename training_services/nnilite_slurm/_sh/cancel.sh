# shellcheck shell=sh
# $2: the attempt's folder; $3: its job, or "". A job that waits is taken back; a keeper that runs gets SIGTERM.
cd "$1" && cd "$2" 2>/dev/null || exit 0
: >canceled
[ -n "$3" ] || exit 0
timeout 15 scancel --state=PENDING "$3" </dev/null
timeout 15 scancel --state=RUNNING --batch --signal=TERM "$3" </dev/null
true
