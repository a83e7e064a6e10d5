#!/bin/sh
# Installs pegel on this node and starts the record of the calling task: start.sh [OPTION]...
# OPTIONs are those of `pegel session start`.
#
# Call it in the task's directory, which names the task for some engines. It may be called by every
# task of a node, also at the same time. Nothing that runs later is left in the task's directory,
# which may be deleted. It always exits with 0: without pegel, the task runs without a record.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 0
dir=${PEGEL_NODE_DIR:-${AZ_BATCH_NODE_SHARED_DIR:-/tmp}/pegel-$(id -u)}

fail() {
    echo "pegel: $1; this task has no record" >&2
    exit 0
}

# Other users must not be able to replace the program.
(umask 077 && mkdir -p "$dir") 2>/dev/null
if [ -L "$dir" ] || [ ! -d "$dir" ] || [ ! -O "$dir" ] || ! chmod 700 "$dir"; then
    fail "$dir is not a directory of this user"
fi

# Replaces a file at once: agents and other tasks may be using it.
install_file() {
    cmp -s "$here/$1" "$dir/$1" && return
    cp "$here/$1" "$dir/.$1.$$" && chmod "$2" "$dir/.$1.$$" && mv -f "$dir/.$1.$$" "$dir/$1"
}

install_file pegel 755 || fail "cannot write $dir/pegel"
if [ -e "$here/pegel.yaml" ]; then
    install_file pegel.yaml 644 || fail "cannot write $dir/pegel.yaml"
    PEGEL_CONFIG=${PEGEL_CONFIG:-$dir/pegel.yaml}
    export PEGEL_CONFIG
fi
@TO@
# The task is what the calling script starts.
case " $* " in
    *" --pid "* | *" --pid="*) ;;
    *) set -- --pid "$PPID" "$@" ;;
esac
if command -v timeout >/dev/null 2>&1; then
    timeout -k 5 60 "$dir/pegel" session start "$@"
else
    "$dir/pegel" session start "$@"
fi </dev/null || fail "pegel session start failed"
exit 0
