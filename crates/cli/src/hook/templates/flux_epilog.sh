#!/bin/sh
# Flux's epilog, on every node of a job: adds what the job used there to its memo.
# @MARK@
#
# A failing epilog raises an exception on the job, so this one always exits with 0.
@FLUX@
pegel_path=$(command -v @PEGEL@ 2>/dev/null) || exit 0

[ -n "${FLUX_JOB_ID:-}" ] || exit 0
rank=$(flux getattr rank 2>>"$pegel_log") || exit 0
id=$(flux job id --to=f58plain "$FLUX_JOB_ID" 2>>"$pegel_log") || exit 0
jobs=$(timeout -k 5 30 "$pegel_path" jobs "$id" --since 30d --limit 1 -f csv -u "$rundir/pegel.sock" \
    2>>"$pegel_log") || exit 0

# Two lines: the names of the columns, and the job.
memo=$(printf '%s\n' "$jobs" | awk -F , -v rank="$rank" '
    NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i }
    NR == 2 {
        split("cpu_seconds memory_peak gpu_seconds state", names, " ")
        for (i = 1; i <= 4; i++) {
            value = $column[names[i]]
            if (value != "") printf "pegel.%s.%s=%s\n", rank, names[i], value
        }
    }')
[ -n "$memo" ] || exit 0
# One argument per line; a state such as "exit 1" contains a blank.
set --
while IFS= read -r word; do
    set -- "$@" "$word"
done <<EOF
$memo
EOF
timeout -k 5 30 flux job memo "$FLUX_JOB_ID" "$@" </dev/null >>"$pegel_log" 2>&1 || :
exit 0
