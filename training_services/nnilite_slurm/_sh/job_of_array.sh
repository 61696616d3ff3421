# shellcheck shell=bash
trial=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" tasks)
cd "../../trials/$trial" || fail "the folder of trial $trial is gone"
exec >job.log 2>&1
