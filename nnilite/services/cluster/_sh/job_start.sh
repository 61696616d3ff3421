# shellcheck shell=sh disable=SC2016,SC2034
root=$(cd ../../../.. && pwd)
start='keeper=$1 spec=$2; shift 2
for python in "$@"; do
    if "$python" -I -S -c "import sys; sys.exit(sys.version_info < (3, 8))" </dev/null 2>/dev/null; then
        exec "$python" -I -S "$keeper" run "$spec"
    fi
done
echo "the node has no Python 3.8 or later: install one, or set pythonPath" | tee failed >&2
exit 4'
