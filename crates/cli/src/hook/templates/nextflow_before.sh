
pegel_binary=@PEGEL@
@SESSION@
pegel_slot=nextflow-$(printf '%s' "$PWD" | cksum | cut -d ' ' -f 1)
pegel_session start @OPTIONS@${PEGEL_WORKFLOW:+--workflow "$PEGEL_WORKFLOW"} --slot "$pegel_slot" --pid "$$"
