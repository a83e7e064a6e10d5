#!/bin/sh
# Slurm's TaskProlog: starts the record of the job on this node. It runs as the job's user.
# @MARK@
#
# Slurm interprets its output, so it prints nothing. Only the first task of a step on a node
# calls pegel; further steps of the job continue its record.
pegel_binary=@PEGEL@
@SESSION@

if [ "${SLURM_LOCALID:-0}" = 0 ] && [ -n "${SLURM_JOB_ID:-}" ]; then
    pegel_session start @OPTIONS@--slot "slurm-$SLURM_JOB_ID" --pid "${SLURM_TASK_PID:-$$}"
fi
exit 0
