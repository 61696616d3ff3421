#!/bin/sh
# A trial without Python: the cube root of a number by Newton's method, from a start that is searched for.
# Parameters are JSON in $NNI_SYS_DIR/parameter.cfg; results are lines in the file $NNILITE_METRICS.
set -eu

parameter() {
    awk -v name="$1" '
        match($0, "\"" name "\": *[-+.0-9eE]+") {
            text = substr($0, RSTART, RLENGTH)
            sub(/.*: */, "", text)
            print text
        }' "$NNI_SYS_DIR/parameter.cfg"
}

x=$(parameter start)
damping=$(parameter damping)
for step in 1 2 3 4 5; do
    x=$(awk -v x="$x" -v d="$damping" 'BEGIN { OFMT = "%.12g"; print x - d * (x * x * x - 27) / (3 * x * x) }')
    error=$(awk -v x="$x" 'BEGIN { OFMT = "%.12g"; e = x - 3; print (e < 0 ? -e : e) }')
    echo "step $step: x is $x"                                  # goes to the trial's stdout
    echo "intermediate $error" >> "$NNILITE_METRICS"
done
echo "final {\"default\": $error, \"root\": $x}" >> "$NNILITE_METRICS"
