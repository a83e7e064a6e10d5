#!/bin/bash
# The start task of a pool in Azure Batch: installs pegel on the node.
# @MARK@
#
# Resource files of the start task: this script, pegel-task.sh, and either the program `pegel` or, in
# $PEGEL_BUNDLE_URL, the address of the archive that `pegel bundle` made. Command line:
#     /bin/bash -c 'bash start-task.sh'
# It always exits with 0: without pegel, the node runs its tasks without records.
shared=${AZ_BATCH_NODE_SHARED_DIR:-/tmp}/pegel
url=${PEGEL_BUNDLE_URL:-@BUNDLE@}

# Replaces a file at once: tasks of the pool may be running it.
install_file() {
    cp "$1" "$shared/.$2.$$" && chmod 755 "$shared/.$2.$$" && mv -f "$shared/.$2.$$" "$shared/$2"
}

install_pegel() {
    mkdir -p "$shared" || return
    # Another user could replace the program later.
    if [ -L "$shared" ] || [ ! -O "$shared" ] || ! chmod 755 "$shared"; then
        return 1
    fi
    # First: tasks call it, with or without pegel.
    install_file pegel-task.sh pegel-task.sh || return
    if [ -n "$url" ]; then
        curl -fsSL --retry 3 --connect-timeout 10 --max-time 120 -o bundle.tar.gz "$url" &&
            tar -xzf bundle.tar.gz && install_file pegel-bundle/pegel pegel || return
        if [ -e pegel-bundle/pegel.yaml ]; then
            install_file pegel-bundle/pegel.yaml pegel.yaml
        fi
    else
        install_file pegel pegel
    fi
}

install_pegel || echo "pegel could not be installed; tasks run without records" >&2
exit 0
