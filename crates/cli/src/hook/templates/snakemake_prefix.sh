pegel_binary=@PEGEL@
@SESSION@
pegel_slot=snakemake-$(printf '%s %s' "$PWD" "$pegel_task" | cksum | cut -d ' ' -f 1)
pegel_session start @OPTIONS@--workflow "$PEGEL_WORKFLOW" --task "$pegel_task" --slot "$pegel_slot" --pid "$$"
trap 'pegel_session stop --slot "$pegel_slot" --exit-status "$?"' EXIT
