# shellcheck shell=sh
# $2: the attempt's folder. Prints an archive of it, without what holds secrets and what is ours.
cd "$1" && cd "$2" || exit
tar -cf - --exclude=./spec.json --exclude=./code --exclude=./.nni/sdk --exclude=./.nni/lock --exclude=./script \
    --exclude=./job --exclude=./array --exclude=./claim --exclude=./owner --exclude=./submitting --exclude=./removed .
