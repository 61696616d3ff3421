#!/bin/bash
# What a host does after its root is its own: its user, its keys, its sshd.
set -euo pipefail
cd /
printf '127.0.0.1 localhost\n%s manager\n%s %s\n' "$GATEWAY" "$ADDRESS" "$NAME" >/etc/hosts
: >/etc/resolv.conf # a lookup that nobody answers would take seconds
id tester >/dev/null 2>&1 || {
    mkdir -p "$(dirname "$HOME_FOLDER")"
    useradd --create-home --home-dir "$HOME_FOLDER" --shell /bin/bash tester
    echo tester:s3cret | chpasswd
}
install -d -m700 -o tester -g tester "$HOME_FOLDER/.ssh"
install -m600 -o tester -g tester /authorized_keys "$HOME_FOLDER/.ssh/authorized_keys"
[ -f /etc/ssh/host_key ] || ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/host_key
cat >/etc/ssh/sshd_config <<CONFIG
HostKey /etc/ssh/host_key
UsePAM no
PasswordAuthentication yes
KbdInteractiveAuthentication no
Subsystem sftp internal-sftp
MaxStartups 200
MaxSessions 200
MaxAuthTries 4
UseDNS no
LogLevel VERBOSE
PidFile /run/sshd.pid
$(printf '%b' "$SSHD_OPTIONS")
CONFIG
while :; do
    /usr/sbin/sshd -D -e 2>>/var/log/sshd.log || true
    sleep 0.2
done
