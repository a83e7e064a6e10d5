# Variables for `flux start`: run the scripts of this folder with every broker, and send the counters of
# Flux's modules to the agent.
# @MARK@
FLUX_RC_EXTRA=@DIR_WORD@${FLUX_RC_EXTRA:+:$FLUX_RC_EXTRA}
FLUX_FRIPP_STATSD=${FLUX_FRIPP_STATSD:-127.0.0.1:8125}
export FLUX_RC_EXTRA FLUX_FRIPP_STATSD
