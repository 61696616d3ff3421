# shellcheck shell=sh
# $2: the keeper's name in the cache; $3: the code's; the rest: where Python may be. Standard input: the shared storage.
# Prints why the code cannot be taken from there.
umask 077
cd "$1/cache" || exit
keeper=$2 archive=$3
shift 3
for python in "$@"; do
    if "$python" -I -S -c "import sys; sys.exit(sys.version_info < (3, 8))" </dev/null 2>/dev/null; then
        exec "$python" -I -S "$keeper" fetch "$archive"
    fi
done
echo "there is no Python 3.8 or later here"
exit 1
