# shellcheck shell=sh
# $2: the array's folder; standard input: the folders of its tasks, relative to the trials, one a line.
umask 077
cd "$1" && mkdir -p "$2" && cd "$2" || exit
cat >tasks.new && mv tasks.new tasks
while read -r trial; do
    [ -d "../../trials/$trial" ] && echo "${PWD##*/}" >"../../trials/$trial/array"
done <tasks
