
pegel_session stop --slot "$pegel_slot" --exit-status "${nxf_main_ret:-0}"
