#!/bin/sh
# Flux's rc3: stops the agent of this broker.
# @MARK@
@FLUX@

pid=$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' "$rundir/pegel/endpoint.json" 2>/dev/null | head -n 1)
if [ -n "$pid" ] && kill -TERM "$pid" 2>/dev/null; then
    tries=0
    while [ "$tries" -lt 100 ] && kill -0 "$pid" 2>/dev/null; do
        tries=$((tries + 1))
        sleep 0.1
    done
fi
exit 0
