#!/bin/bash
# The steps of a Dockerfile in a root filesystem of its own: `container.sh FOLDER SOURCES`, in a mount namespace of its own.
# FOLDER/build.sh has the steps, FOLDER/facts the variables and the command that they lead to; see test_image.py.
set -euo pipefail
# shellcheck disable=SC2034 # build.sh takes files from $sources
folder=$1 sources=$2 root=$1/root
mkdir -p "$root" "$folder/upper" "$folder/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
inside() { chroot "$root" /usr/bin/env "$@"; }
# What stands for the base image: this machine's system with a Python as the command `python`.
! old=$(inside getent passwd 1000 | cut -d: -f1) || [ -z "$old" ] || inside userdel "$old"
inside /usr/bin/python3 -m venv /opt/python
mkdir -p "$root/etc/nnilite"
# shellcheck disable=SC1091
. "$folder/build.sh"
cp "$folder/config.yaml" "$root/etc/nnilite/config.yaml"
mount -t tmpfs -o uid=1000,gid=1000,mode=700 tmpfs "$root/data" # the volume
mount -o remount,ro "$root"
# shellcheck disable=SC1091
. "$folder/facts"
as_user() { chroot --userspec="$USER_IDS" "$root" /usr/bin/env -i "${VARIABLES[@]}" "$@"; }
start() {
    unshare --pid --fork --kill-child --mount-proc="$root/proc" -- \
        chroot --userspec="$USER_IDS" "$root" /usr/bin/env -i "${VARIABLES[@]}" "${COMMAND[@]}" &
    outer=$!
    for _ in $(seq 200); do
        if as_user "${PROBE[@]}" 2>/dev/null; then return 0; fi
        kill -0 "$outer" || return 1
        sleep 0.3
    done
    return 1
}
end() {
    kill -TERM "$(pgrep -P "$outer")"
    wait "$outer"
}
start
end
echo "first: $(as_user python -m nnilite._cli experiment list --all --json | tr -d '\n')"
start
end
echo "second: $(as_user python -m nnilite._cli experiment list --all --json | tr -d '\n')"
touch "$root/usr/written" 2>/dev/null && echo "the root can be written" || echo "the root is read-only"
