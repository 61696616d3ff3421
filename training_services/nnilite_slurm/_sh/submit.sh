# shellcheck shell=sh
# $2: the folder of the job or the array; $3: its name; $4: "", or the number of tasks of an array.
# Standard input: the script. Prints the job's id. What an earlier call has submitted is found again, by its note or in
# Slurm's queue. The exit status is 75 if Slurm is away, 76 while it cannot be known what became of an earlier call, 77 if
# Slurm refuses the job, and 78 if it accepts no jobs for the moment.
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
# sbatch would wait for two minutes while Slurm accepts no jobs (sbatch.c: MAX_RETRIES, `sleep(++retries)`). It is ended
# as soon as it says so, in its first pause.
stop_waiting() {
    full=
    while read -r word rest; do
        case $word in
            pid:) pid=$rest ;;
            status:) exit "${full:-$rest}" ;;
            *)
                [ -n "$full" ] || echo "$word $rest" >&2
                case $rest in *"retrying"*) full=78; kill "$pid" ;; esac
                ;;
        esac
    done
}
if [ -e submitting ] || [ -e full ]; then
    found=$(squeue --noheader --states=all --user="$(id -u)" --name="$3" --format=%F </dev/null) || exit 75
    found=$(echo "$found" | head -n 1)
    if [ -n "$found" ]; then cat >/dev/null; note "$found"; exit; fi
    [ ! -e submitting ] || [ -z "$(find submitting -newermt '-70 seconds')" ] || exit 76
fi
cat >script
rm -f full
: >submitting
answer=$({ {
    # shellcheck disable=SC2016
    sh -c 'echo "pid: $$" >&2; exec timeout 60 sbatch --parsable script' </dev/null
    echo "status: $?" >&2
} 2>&1 >&3 3>&- | stop_waiting; } 3>&1)
status=$?
if [ $status = 124 ]; then exit 76; fi
if [ $status = 78 ]; then mv submitting full; exit 78; fi
if [ $status != 0 ] || [ -z "$answer" ]; then rm -f submitting; exit 77; fi
note "${answer%%;*}"
