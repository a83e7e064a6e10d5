#!/bin/sh
# Flux's rc1: starts an agent beside this broker, outside of any job.
# @MARK@
#
# A failing rc1 script ends the instance, so this one always exits with 0.
@FLUX@
pegel_path=$(command -v @PEGEL@ 2>/dev/null) || exit 0

broker=$(flux getattr broker.pid 2>>"$pegel_log") || exit 0
# The variables of an enclosing job would be taken for those of the agent.
unset FLUX_JOB_ID FLUX_TASK_RANK FLUX_TASK_LOCAL_ID SLURM_JOB_ID PBS_JOBID LSB_JOBID PEGEL_JOB

start_agent() {
    # With --until-pid the agent ends with the broker, however that ends.
    setsid "$pegel_path" agent --dir "$rundir/pegel" --socket "$rundir/pegel.sock" --port-search \
        --until-pid "$broker" --statsd "udp:$1" </dev/null >>"$pegel_log" 2>&1 &
    pegel_pid=$!
    tries=0
    while [ "$tries" -lt 100 ]; do
        # It exists when the agent is ready.
        if [ -e "$rundir/pegel/endpoint.json" ]; then
            return 0
        fi
        kill -0 "$pegel_pid" 2>/dev/null || return 1
        tries=$((tries + 1))
        sleep 0.1
    done
    return 0
}

# The address of the counters belongs to the first broker of a node; others take any free port.
start_agent "${FLUX_FRIPP_STATSD:-127.0.0.1:8125}" || start_agent 127.0.0.1:0 || :
exit 0
