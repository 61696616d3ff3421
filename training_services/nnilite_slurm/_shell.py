"""The shell scripts that are run where the commands of Slurm are. Each has the folder of all files as $1."""

from __future__ import annotations

# $1: the folder; $2: how many days unused packages stay; the rest: files of the cache that are needed.
# Prints its absolute name, and for each of these files its size, or "-".
PREPARE = """
umask 077
case $1 in /*) root=$1;; "~/"*) root=$HOME/${1#??};; *) root=$HOME/$1;; esac
days=$2
shift 2
mkdir -p "$root/cache" || exit
cd "$root" || exit
for name in "$@"; do
    [ ! -e "cache/$name" ] || touch "cache/$name"
done
find cache -maxdepth 1 -type f -mtime "+$days" -exec rm -f {} + 2>/dev/null
for name in "$@"; do
    if [ -s "cache/$name" ]; then wc -c <"cache/$name"; else echo -; fi
done
pwd -P
"""

# $2: the file's name in the cache; standard input: its content.
UPLOAD = """
umask 077
cd "$1/cache" || exit
draft=".$2.$$"
trap 'rm -f "$draft"' EXIT
cat >"$draft" && mv -f "$draft" "$2"
"""

# $2: the keeper's name in the cache; $3: the code's; the rest: where Python may be. Standard input: the shared storage.
# Prints why the code cannot be taken from there.
TAKE_CODE = """
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
"""

# $2: the attempt's folder; $3: the size of the specification, which comes first on standard input.
# An attempt that has been submitted, or may have been, keeps its specification: exit status 3.
WRITE_SPEC = """
umask 077
cd "$1" || exit
mkdir -p "$2" && cd "$2" || exit
for sign in .nni array job submitting removed; do
    if [ -e "$sign" ]; then cat >/dev/null; exit 3; fi
done
head -c "$3" >spec.new && mv spec.new spec.json
"""

# $2: the folder of the job or the array; $3: its name; $4: "", or the number of tasks of an array.
# Standard input: the script. Prints the job's id. What an earlier call has submitted is found again, by its note or in
# Slurm's queue. While it cannot be known what became of an earlier call, the exit status is 76; of 75 Slurm is away.
SUBMIT = """
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
"""

# $2: the array's folder; standard input: the folders of its tasks, relative to the trials, one a line.
WRITE_TASKS = """
umask 077
cd "$1" && mkdir -p "$2" && cd "$2" || exit
cat >tasks.new && mv tasks.new tasks
while read -r trial; do
    [ -d "../../trials/$trial" ] && echo "${PWD##*/}" >"../../trials/$trial/array"
done <tasks
"""

# $2: a mark; $3 ...: the command that lists jobs; standard input: names of files, each with a zero byte at its end.
# Slurm is asked before the files: the other way round, an end in between looks like a loss. While slurmctld is away,
# squeue tries again for as long as a minute, and the files are wanted all the same.
# The mark and the exit status end the list; then come the sizes of those files that are there.
POLL = """
cd "$1" || exit 71
mark=$2
shift 2
timeout 15 "$@" </dev/null
printf '\\n%s %d\\n' "$mark" $?
xargs -0 -r stat --printf='%s %n\\0' -- 2>/dev/null
true
"""

# Standard input: names of files, each with a zero byte. Prints an archive of those that are there, and are small files:
# a trial may have put a link or anything else in their place, which holds up no other trial.
TAKE = """
cd "$1" && xargs -0 -r sh -c 'exec find -P "$@" -maxdepth 0 -type f -size -2000 -print0' nnilite 2>/dev/null \
    | tar -cf - --ignore-failed-read --no-recursion --null -T - 2>/dev/null
true
"""

# Standard input: lines of offset, length and name. Prints these pieces one after the other.
PIECES = """
cd "$1" || exit
while read -r offset length name; do
    [ -f "$name" ] && [ ! -h "$name" ] && tail -c "+$((offset + 1))" "$name" | head -c "$length"
done
"""

# $2: the attempt's folder. Prints an archive of it, without what holds secrets and what is ours.
FETCH = """
cd "$1" && cd "$2" || exit
tar -cf - --exclude=./spec.json --exclude=./code --exclude=./.nni/sdk --exclude=./.nni/lock --exclude=./script \
    --exclude=./job --exclude=./array --exclude=./claim --exclude=./owner --exclude=./submitting --exclude=./removed .
"""

# $2: the attempt's folder. Prints kind, size, time, path and the target of a link of each entry, with zero bytes.
FILES = """
cd "$1" && cd "$2" || exit 3
find -P . -mindepth 1 \\( -path ./spec.json -o -path ./code -o -path ./.nni -o -path ./script -o -path ./job \\
    -o -path ./array -o -path ./claim -o -path ./owner -o -path ./submitting -o -path ./removed \\) -prune \\
    -o ! -type d -printf '%y %s %T@ %P\\0%l\\0' 2>/dev/null | head -c 4000000
true
"""

# $2: the attempt's folder; $3: a path in it; $4: how many bytes at most. Prints the file.
FILE = """
cd "$1" && cd "$2" || exit 3
[ -f "./$3" ] && [ ! -h "./$3" ] || exit 3
exec head -c "$4" "./$3"
"""

# $2: the attempt's folder; $3: its job, or "". A job that waits is taken back; a keeper that runs gets SIGTERM.
CANCEL = """
cd "$1" && cd "$2" 2>/dev/null || exit 0
: >canceled
[ -n "$3" ] || exit 0
timeout 15 scancel --state=PENDING "$3" </dev/null
timeout 15 scancel --state=RUNNING --batch --signal=TERM "$3" </dev/null
true
"""

# $2: the experiment; standard input: the manager's address, which keepers look up there.
CALLBACK = """
umask 077
cd "$1" && mkdir -p "$2" && cd "$2" && cat >callback.new && mv callback.new callback
"""

# $2: the attempt's folder; $3: its job, or "". Ends what still runs, and removes what holds a secret or much space.
REMOVE = """
cd "$1" || exit 0
if [ -n "$3" ]; then
    said=$(timeout 15 scancel "$3" 2>&1 </dev/null) || case $said in
        *"nvalid job id"* | *already*) ;;
        *) echo "$said" >&2; exit 75 ;;
    esac
fi
cd "$2" 2>/dev/null || exit 0
: >removed
rm -f spec.json spec.new
rm -rf code
true
"""

# $2: the experiment; $3: "outputs" or "nothing". Clears the folders of attempts that have been removed.
FINISH = """
cd "$1/$2" 2>/dev/null || exit 0
for attempt in trials/*/*; do
    [ -e "$attempt/removed" ] || continue
    if [ "$3" = nothing ]; then rm -rf "$attempt"; continue; fi
    (cd "$attempt" && rm -rf .nni claim \\
        && rm -f again array canceled failed job job.log owner parameter.cfg removed script submitting)
    rmdir "$attempt" 2>/dev/null
done
rmdir trials/* 2>/dev/null
for attempt in trials/*/*/spec.json; do [ ! -e "$attempt" ] || exit 0; done
rm -rf arrays callback
if [ "$3" = nothing ]; then rm -rf checkpoints; fi
rmdir checkpoints/* checkpoints trials . 2>/dev/null
cd ..
rmdir "$2" 2>/dev/null
true
"""
