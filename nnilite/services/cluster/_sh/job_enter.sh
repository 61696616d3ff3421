# shellcheck shell=sh disable=SC2154
# $folder: the attempt's folder; $unseen: the exit status if this node does not see it.
if ! { cd "$folder" && [ -e script ]; }; then
    echo "nnilite: this node does not see the folder $folder of the login node:" \
        "set directory to one that login node and compute nodes share" >&2
    exit "$unseen"
fi
fail() { echo "$*" >failed; echo "nnilite: $*" >&2; exit 70; }
