#!/bin/bash
# Runs the command of a task and records it: pegel-task.sh [--dir DIR] COMMAND [ARGUMENT]...
# @MARK@
#
# The exit status is that of the command, and signals reach it. --dir names the task's directory, if
# it is not the current one. $PEGEL_SLOT names the slot: tasks that run on a node at the same time
# need different ones.
pegel_binary=@PEGEL@
@SESSION@

# The configuration of a bundle is beside the program.
if [ -z "${PEGEL_CONFIG:-}" ] && [ -e "${pegel_binary%/*}/pegel.yaml" ]; then
    export PEGEL_CONFIG="${pegel_binary%/*}/pegel.yaml"
fi

dir=$PWD
if [ "${1:-}" = --dir ]; then
    dir=$2
    shift 2
fi
slot=@SLOT@
pegel_slot=()
[ -z "$slot" ] || pegel_slot=(--slot "$slot")

# pegel derives the name of the task from its directory, so it is called there.
(cd "$dir" && pegel_session start @OPTIONS@"${pegel_slot[@]}" --pid "$$") || :

# A command that a script starts in the background ignores SIGINT, unless that is reset.
(trap - INT QUIT; exec "$@") <&0 &
pegel_child=$!
for pegel_signal in TERM HUP USR1 USR2; do
    # shellcheck disable=SC2064 # The name of the signal is expanded now.
    trap "kill -s $pegel_signal $pegel_child 2>/dev/null" "$pegel_signal"
done
# The terminal or the batch system sends it to the command as well.
trap : INT QUIT
while :; do
    wait "$pegel_child"
    pegel_status=$?
    # A signal interrupts `wait`; the command may still run.
    if [ "$pegel_status" -le 128 ] || ! kill -0 "$pegel_child" 2>/dev/null; then
        break
    fi
done

pegel_recorded=$pegel_status
@STATUS@
(cd "$dir" && pegel_session stop "${pegel_slot[@]}" --exit-status "$pegel_recorded") || :
exit "$pegel_status"
