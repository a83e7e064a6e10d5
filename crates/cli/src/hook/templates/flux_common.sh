# $PEGEL_HOOK_LOG names a file for messages.
pegel_log=${PEGEL_HOOK_LOG:-/dev/null}
# A directory of this broker: several brokers may run on a node.
rundir=$(flux getattr rundir 2>>"$pegel_log") || exit 0
