"""What people and pods wait for: imports of a pod's start, and compiling the pipeline.

Every figure is the best of several fresh interpreters in one run; the ratios compare within it.
"""

import os
import subprocess
import sys

REPEATS = 7
HEAVY = ("torch", "matplotlib", "kubernetes", "kfp", "alembic")
IMPORTS = {
    "python alone": "pass",
    "sqlmodel": "import sqlmodel, sqlalchemy.dialects.sqlite, sqlalchemy.dialects.postgresql",
    "suggest_batch_size's body": "import zeus_kfp.state_store",
    "the same, and what suggesting loads": "import zeus_kfp.state_store, numpy",
    "the training process (without torch)": "import zeus_kfp.zeus_core.training.run",
    "kfp": "import kfp.dsl",
}
COMPILE = """
from zeus_kfp.pipelines.recurring_training import recurring_training
import tempfile, time
from kfp import compiler
started = time.perf_counter()
compiler.Compiler().compile(recurring_training(), tempfile.mktemp(suffix=".yaml"))
print(time.perf_counter() - started)
"""


def import_time_s(statement: str) -> tuple[float, list[str]]:
    """Return the seconds that a statement takes in a fresh interpreter, and the heavy packages that it brought."""
    code = (
        "import time, sys\nstarted = time.perf_counter()\n"
        f"{statement}\ntook = time.perf_counter() - started\n"
        f"print(took, *sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    runs = [_output(code).split() for _ in range(REPEATS)]
    return min(float(run[0]) for run in runs), runs[0][1:]


def compile_time_s() -> float:
    """Return the seconds that building and compiling the pipeline takes, imports not counted."""
    return min(float(_output(COMPILE)) for _ in range(3))


def _output(code: str) -> str:
    # With the bytecode that an installed package has: an editable one may be forbidden to write it.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environ).stdout


def main() -> int:
    """Print the figures; return 1 if one falls short of its bound."""
    times = {}
    for name, statement in IMPORTS.items():
        times[name], heavy = import_time_s(statement)
        print(f"import {name:40} {times[name]:6.3f} s  heavy packages: {', '.join(heavy) or 'none'}")
    suggest = times["suggest_batch_size's body"]
    print(f"suggest_batch_size's body against sqlmodel alone: {suggest / times['sqlmodel']:.2f}")
    compiling = compile_time_s()
    print(f"compiling the pipeline: {compiling:.2f} s, {compiling / times['kfp']:.2f} of importing kfp")
    return int(suggest >= 0.6 or compiling >= 2.0)


if __name__ == "__main__":
    sys.exit(main())
