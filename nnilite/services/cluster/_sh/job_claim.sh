# shellcheck shell=sh disable=SC2154
# $me: the job's id; $again: what to say if the scheduler has started it again.
if mkdir claim 2>/dev/null; then
    echo "$me" >owner.new && mv owner.new owner
else
    [ "$(cat owner)" != "$me" ] || echo "$again" >again
    exit 0
fi
if [ -e canceled ] || [ -e removed ]; then exit 0; fi
