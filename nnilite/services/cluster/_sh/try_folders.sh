# shellcheck shell=sh
# shellcheck disable=SC2016  # the inner shell expands these
# Standard input: folders of attempts, each with a zero byte. Prints those that can be looked at within two seconds.
# No SIGKILL at first: it would end `timeout`, too, and xargs stops where a command was killed.
cd "$1" || exit
xargs -0 -r -P 16 -n 1 timeout -k 2 2 sh -c '
    stat "$1" "$1"/* "$1"/.nni "$1"/.nni/* >/dev/null 2>&1
    for name in again array failed job owner .nni/started .nni/exit; do
        [ ! -f "$1/$name" ] || head -c 1 "$1/$name" >/dev/null 2>&1
    done
    printf "%s\\0" "$1"' nnilite
true
