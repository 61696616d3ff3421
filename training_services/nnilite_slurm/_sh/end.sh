# shellcheck shell=sh
# $3: a job, or "". Ends what still runs of it.
cd "$1" || exit 0
if [ -n "$3" ]; then
    said=$(timeout 15 scancel "$3" 2>&1 </dev/null) || case $said in
        *"nvalid job id"* | *already*) ;;
        *) echo "$said" >&2; exit 75 ;;
    esac
fi
