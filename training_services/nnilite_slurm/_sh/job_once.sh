# shellcheck shell=bash
me=${SLURM_ARRAY_TASK_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}
if mkdir claim 2>/dev/null; then
    echo "$me" >owner.new && mv owner.new owner
else
    [ "$(cat owner)" != "$me" ] || echo "Slurm has started it again (restart ${SLURM_RESTART_COUNT:-0})" >again
    exit 0
fi
if [ -e canceled ] || [ -e removed ]; then exit 0; fi
