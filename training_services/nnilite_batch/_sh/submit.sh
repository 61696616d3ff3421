# shellcheck shell=sh
# $2: the attempt's folder; $3: the command that finds its job, or ""; $4: the command that submits it. Standard input:
# the script, but for its first lines: schedulers give a meaning to signs in a path, so they get none, and the script
# itself goes to its folder. Prints what submitting has printed; what an earlier call has printed is printed again. With
# exit status 78 it prints the id of a job that was found. While it cannot be known what became of an earlier call, the
# exit status is 76; with 77 the job was refused.
umask 077
cd "$1" && cd "$2" || exit
if [ -s answer ]; then cat >/dev/null; cat answer; exit; fi
if [ -e submitting ]; then
    if [ -n "$3" ]; then
        found=$(timeout 30 /bin/sh -c "$3" </dev/null | head -n 1)
        if [ -n "$found" ]; then cat >/dev/null; echo "$found"; exit 78; fi
    fi
    [ -z "$(find submitting -newermt '-70 seconds')" ] || exit 76
fi
{
    echo '#!/bin/bash'
    printf "folder='%s'\n" "$(pwd -P | sed "s/'/'\\\\''/g")"
    cat
} >script
: >submitting
timeout 60 /bin/sh -c "$4" </dev/null >answer.new
status=$?
if [ $status = 124 ]; then exit 76; fi
if [ $status != 0 ]; then cat answer.new; rm -f answer.new submitting; exit 77; fi
mv answer.new answer && cat answer
