# Lines for the batch script that runs each task of TES.
# @MARK@
#
# Put them before the line that starts the task. They download the archive that `pegel bundle` made,
# extract it below the task's directory and start a session, which ends the record of the previous
# task on the node. To record the exit status, call after the task: pegel_task_end "$?"
#
# The archive's address is in $PEGEL_BUNDLE_URL, which may contain a SAS token: do not write that
# into scripts.
pegel_binary=@PEGEL@
@SESSION@

pegel_task_start() {
    pegel_url=${PEGEL_BUNDLE_URL:-@BUNDLE@}
    if [ -n "$pegel_url" ] && pegel_dir=$(mktemp -d "${AZ_BATCH_TASK_DIR:-$PWD}/pegel-XXXXXX"); then
        curl -fsSL --retry 3 --connect-timeout 10 --max-time 120 -o "$pegel_dir/bundle.tar.gz" \
            "$pegel_url" &&
            tar -xzf "$pegel_dir/bundle.tar.gz" -C "$pegel_dir" &&
            sh "$pegel_dir/pegel-bundle/start.sh" @OPTIONS@--pid "$$"
        rm -rf "$pegel_dir"
    else
        pegel_session start @OPTIONS@--pid "$$"
    fi </dev/null >/dev/null 2>>"${PEGEL_HOOK_LOG:-/dev/null}" || :
}

pegel_task_end() {
    pegel_session stop --exit-status "$1"
}

pegel_task_start
