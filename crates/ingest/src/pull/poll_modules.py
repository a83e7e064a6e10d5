# Runs under `flux python`: prints the message counters of the modules of one broker as JSON, for
# the input `flux` of Pegel. One process for each poll, with all requests over one connection.
# Standard input: {"": all modules are on, MODULE: it is on or off whatever its flags}.
import json
import sys

import flux

COUNTERS_FLAG = 0x1000
switches = json.load(sys.stdin)
handle = flux.Flux()


def answer(future):
    try:
        return future.get() or {}
    except Exception as error:
        return {"error": str(error)}


def module_names():
    # The second and third are the names of older brokers.
    for topic in ("module.list", "broker.lsmod", "cmb.lsmod"):
        listed = answer(handle.rpc(topic))
        if "mods" in listed:
            return [module["name"] for module in listed["mods"]]
    sys.exit("cannot list the modules")


def is_on(name, flags):
    if name in switches:
        return switches[name]
    return switches[""] or flags & COUNTERS_FLAG != 0


names = module_names()
# Setting no bit returns the flags.
requests = {name: handle.rpc(name + ".debug", {"op": "setbit", "flags": 0}) for name in names}
modules = {name: {"flags": answer(requests[name]).get("flags", 0)} for name in names}
wanted = [name for name in names if is_on(name, modules[name]["flags"])]
requests = {name: handle.rpc(name + ".stats-get") for name in wanted}
for name in wanted:
    stats = answer(requests[name])
    if "error" in stats:
        # The name in older brokers.
        stats = answer(handle.rpc(name + ".stats.get"))
    modules[name]["stats"] = stats
json.dump({"rank": int(handle.attr_get("rank")), "modules": modules}, sys.stdout)
