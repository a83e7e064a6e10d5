# Snakemake: a record of every job with a shell command
# @MARK@
#
# Put `include: "pegel.smk"` at the top of the Snakefile. Each shell command then starts a session, and
# ends it with its exit status. Jobs of all executors are recorded: they read the Snakefile too. The
# task is named by rule and wildcards, the workflow by the directory and the start of the run;
# $PEGEL_WORKFLOW sets another name.
import inspect as _pegel_inspect
import os as _pegel_os
import shlex as _pegel_shlex
import time as _pegel_time

# Processes of the same run inherit it.
_pegel_os.environ.setdefault(
    "PEGEL_WORKFLOW",
    "%s-%s"
    % (
        _pegel_os.path.basename(_pegel_os.getcwd()),
        _pegel_time.strftime("%Y%m%dT%H%M%S", _pegel_time.gmtime()),
    ),
)

_PEGEL_SCRIPT = @SCRIPT@


def _pegel_task(frame):
    """Returns the rule and the wildcards of the job that runs a shell command."""
    while frame is not None:
        names = frame.f_locals
        if "rule" in names and "jobid" in names and "wildcards" in names:
            wildcards = getattr(names["wildcards"], "items", list)()
            return "-".join(
                [str(names["rule"])] + ["%s=%s" % (key, value) for key, value in wildcards]
            )
        frame = frame.f_back
    return ""


def _pegel_prefix(cls, shell_exec=None):
    name = _pegel_task(_pegel_inspect.currentframe().f_back)
    if not name:
        return _pegel_default_prefix(shell_exec)
    script = "pegel_task=%s\n%s" % (_pegel_shlex.quote(name), _PEGEL_SCRIPT)
    return script + _pegel_default_prefix(shell_exec)


# Snakemake 8 and later compute the prefix of each command here. Older versions record nothing.
if hasattr(shell, "_get_process_prefix"):
    _pegel_default_prefix = shell._get_process_prefix
    shell._get_process_prefix = classmethod(_pegel_prefix)
