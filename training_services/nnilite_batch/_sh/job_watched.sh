# shellcheck shell=bash
keeper=$!
trap 'kill -TERM "$keeper" 2>/dev/null' TERM INT HUP XCPU USR1 USR2
while kill -0 "$keeper" 2>/dev/null; do
    if [ -e canceled ] || { read -r order <orders && [ -n "$order" ]; } 2>/dev/null; then
        kill -TERM "$keeper" 2>/dev/null
        break
    fi
    sleep 1 &
    wait "$!"
done
while :; do
    wait "$keeper"
    status=$?
    kill -0 "$keeper" 2>/dev/null || exit "$status"
done
