# shellcheck shell=sh
# $2: the experiment; $3: "outputs" or "nothing". Clears the folders of attempts that have been removed.
cd "$1/$2" 2>/dev/null || exit 0
for attempt in trials/*/*; do
    [ -e "$attempt/removed" ] || continue
    if [ "$3" = nothing ]; then rm -rf "$attempt"; continue; fi
    (cd "$attempt" && rm -rf .nni claim \
        && rm -f again array canceled failed job job.log owner parameter.cfg removed script submitting)
    rmdir "$attempt" 2>/dev/null
done
rmdir trials/* 2>/dev/null
for attempt in trials/*/*/spec.json; do [ ! -e "$attempt" ] || exit 0; done
rm -rf arrays callback
if [ "$3" = nothing ]; then rm -rf checkpoints; fi
rmdir checkpoints/* checkpoints trials . 2>/dev/null
cd ..
rmdir "$2" 2>/dev/null
true
