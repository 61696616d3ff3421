# shellcheck shell=sh
# $2: the folder of the job or the array; $3: its name; $4: "", or the number of tasks of an array.
# Standard input: the script. Prints the job's id. What an earlier call has submitted is found again, by its note or in
# Slurm's queue. While it cannot be known what became of an earlier call, the exit status is 76; of 75 Slurm is away.
umask 077
cd "$1" && cd "$2" || exit
note() {
    echo "$1" >job.new && mv job.new job && cat job
    [ ! -e tasks ] || { number=0; while read -r trial; do
        echo "$1_$number" >"../../trials/$trial/job.new" && mv "../../trials/$trial/job.new" "../../trials/$trial/job"
        number=$((number + 1))
    done <tasks; }
}
if [ -s job ]; then cat >/dev/null; note "$(cat job)"; exit; fi
if [ -e submitting ]; then
    found=$(squeue --noheader --states=all --name="$3" --format=%F </dev/null) || exit 75
    found=$(echo "$found" | head -n 1)
    if [ -n "$found" ]; then cat >/dev/null; note "$found"; exit; fi
    [ -z "$(find submitting -newermt '-70 seconds')" ] || exit 76
fi
cat >script
: >submitting
answer=$(timeout 60 sbatch --parsable script </dev/null)
status=$?
if [ $status = 124 ]; then exit 76; fi
if [ $status != 0 ] || [ -z "$answer" ]; then rm -f submitting; exit 77; fi
note "${answer%%;*}"
