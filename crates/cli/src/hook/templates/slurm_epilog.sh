#!/bin/sh
# Slurm's Epilog: ends the record of the job on this node. It runs as root, with a small environment.
# @MARK@
#
# Slurm drains the node if an Epilog fails, so this one always exits with 0.
PATH=${PATH:-/usr/bin:/bin:/usr/sbin:/sbin}
export PATH

# The session belongs to the job's user, whose agent has its socket in directories of its own.
if [ "$(id -u)" = 0 ] && [ "${SLURM_JOB_UID:-0}" != 0 ] && command -v setpriv >/dev/null 2>&1; then
    HOME=$(getent passwd "$SLURM_JOB_UID" 2>/dev/null | cut -d : -f 6)
    HOME=${HOME:-/} XDG_RUNTIME_DIR=/run/user/$SLURM_JOB_UID
    export HOME XDG_RUNTIME_DIR
    setpriv --reuid "$SLURM_JOB_UID" --regid "${SLURM_JOB_GID:-$SLURM_JOB_UID}" --clear-groups \
        /bin/sh "$0" </dev/null >/dev/null 2>&1 || :
    exit 0
fi

pegel_binary=@PEGEL@
@SESSION@

if [ -n "${SLURM_JOB_ID:-}" ]; then
    # The status of the job's script as wait() returns it, where this version of Slurm has it.
    status=${SLURM_JOB_EXIT_CODE:-}
    case $status in
        '' | *[!0-9]*) pegel_session stop --slot "slurm-$SLURM_JOB_ID" ;;
        *)
            signal=$((status % 128))
            if [ "$signal" -eq 0 ]; then
                status=$((status / 256))
            else
                status=$((128 + signal))
            fi
            pegel_session stop --slot "slurm-$SLURM_JOB_ID" --exit-status "$status"
            ;;
    esac
fi
exit 0
