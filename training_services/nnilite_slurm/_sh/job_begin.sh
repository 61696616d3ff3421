# shellcheck shell=bash
if ! { cd "$SLURM_SUBMIT_DIR" && [ -e script ]; }; then
    echo "nnilite: this node does not see the folder $SLURM_SUBMIT_DIR of the login node:" \
        "set directory to one that login node and compute nodes share" >&2
    exit 70
fi
fail() { echo "$*" >failed; echo "nnilite: $*" >&2; exit 70; }
