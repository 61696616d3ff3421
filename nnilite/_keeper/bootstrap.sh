# shellcheck shell=sh disable=SC2006,SC2027,SC2086
# The program is $0 of the shell, so nothing has to be quoted, and backquotes stand where a platform (Kubernetes, Azure)
# would take $(...) for a variable of its own. A Python that is too old, even 2, must still be able to tell its version.
trap 'exit 143' TERM
old=
for p in python3 python /usr/local/bin/python3 /usr/bin/python3 /opt/conda/bin/python \
python3.15 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8
do
v=`"$p" -S -c 'import sys; v = sys.version_info; sys.stdout.write("%d.%d %d" % (v[0], v[1], v[:2] >= (3, 8)))' \
2>/dev/null` || continue
case $v in *" 1") exec "$p" -I -S -c "$0" "$@";; esac
old="$old, $p is ${v% *}"
done
m="the image has no Python 3.8 or later, which every job needs$old; install one in the image"
echo "$m" >&2
echo "NNILITE_EVENT {\"type\": \"exit\", \"time\": `date +%s`, \"code\": null, \"message\": \"$m\"}"
case $1 in --message) echo "{\"nnilite\": {\"code\": null, \"message\": \"$m\"}}" >"$2";; esac
exit 4
