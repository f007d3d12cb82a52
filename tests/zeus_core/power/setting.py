"""Processes that set power limits: one of training's, and one of an administrator."""

import subprocess
import sys

SET_AND = """
import os, signal, sys
# Whoever runs the tests in the background may have handed down that these are ignored.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
from zeus_kfp.zeus_core.power import open_limiter
from zeus_kfp.zeus_core.power.on_signal import RestoreAtEnd
limiter = open_limiter()
guard = RestoreAtEnd(limiter)
limiter.set(150)
{code}
"""


def set_and_command(code):
    """Return the command of a process that sets 150 W and then runs code."""
    return [sys.executable, "-c", SET_AND.format(code=code)]


def administrator_sets(fake_gpus, limit_w, index=0):
    """Let another process set the limit of a GPU."""
    code = "import pynvml as n; n.nvmlInit(); n.nvmlDeviceSetPowerManagementLimit({}, {})"
    gpu = f"n.nvmlDeviceGetHandleByIndex({index})"
    subprocess.run([sys.executable, "-c", code.format(gpu, limit_w * 1000)], env=fake_gpus.environ, check=True)
