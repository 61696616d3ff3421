#!/bin/bash
# The first process of a host: `init.sh FOLDER`, in namespaces of its own. See hosts.py.
set -euo pipefail
folder=$1
# shellcheck disable=SC1091
. "$folder/facts"
root=$folder/root
hostname "$NAME"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$root"
mount -t proc proc "$root/proc"
mount --bind "$folder/boot_id" "$root/proc/sys/kernel/random/boot_id" # the machine's own one never changes
mount --rbind /dev "$root/dev"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
# Trials run this Python, and a clone of the project may lie below /tmp, which each host has for itself.
case "$PYTHON" in /tmp/*) mkdir -p "$root$PYTHON" && mount --bind "$PYTHON" "$root$PYTHON" ;; esac
mkdir -p "$root/run/sshd"
[ ! -d "$folder/shared" ] || { mkdir -p "$root/shared"; mount --bind "$folder/shared" "$root/shared"; }
chmod 711 "$root/root" # Pythons may live there; only this host's copy is changed
install -m755 "$folder/inside.sh" "$root/inside.sh"
install -m600 "$folder/authorized_keys" "$root/authorized_keys"
exec chroot "$root" /usr/bin/env -i NAME="$NAME" ADDRESS="$ADDRESS" GATEWAY="$GATEWAY" HOME_FOLDER="$HOME_FOLDER" \
    SSHD_OPTIONS="$SSHD_OPTIONS" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /bin/bash /inside.sh
