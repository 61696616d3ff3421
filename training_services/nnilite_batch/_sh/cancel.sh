# shellcheck shell=sh
# shellcheck disable=SC2016  # the inner shell expands these
# $2: the attempt's folder; $3: the command that ends its job, or "". One that waits is taken back; one that has begun
# finds the order, and ends its trial softly. One whose folder hangs cannot be asked, and is ended.
cd "$1" || exit 0
timeout -s KILL 5 sh -c 'cd "$1" && : >canceled || exit 3
if [ -e orders ]; then echo end >orders; fi
[ ! -e claim ] || exit 3' nnilite "$2" 2>/dev/null
case $? in 0 | 124 | 137) ;; *) exit 0 ;; esac
if [ -n "$3" ]; then exec timeout 15 /bin/sh -c "$3" </dev/null; fi
