# shellcheck shell=sh
# $3: a job, or "". One that waits is taken back; a keeper that runs gets SIGTERM.
[ -n "$3" ] || exit 0
timeout 15 scancel --state=PENDING "$3" </dev/null
timeout 15 scancel --state=RUNNING --batch --signal=TERM "$3" </dev/null
true
