"""A GPU for machines without any: the driver's library, made of our own source, with a power curve.

Whatever the library does with NVML runs as on a real card: the real nvidia-ml-py loads this library in its place.
"""

import ctypes
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from zeus_kfp.zeus_core.errors import InvalidValueError

LIBRARY = "libnvidia-ml.so.1"
STEP_VARIABLE = "ZEUS_KFP_DEMO_FAKE_GPU"
"""Set where the demonstration's training shall take the time that the fake GPU takes."""

_FIXED_STEP_S = 0.002
_SAMPLE_S = 0.00003


def build(folder: Path) -> Path:
    """Compile the library into a folder and return its path.

    Raises:
        InvalidValueError: If there is no C compiler.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise InvalidValueError("a fake GPU needs a C compiler: install one that is called cc, or use --device cpu")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / LIBRARY
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", f"-Wl,-soname,{LIBRARY}"]
    with as_file(files("zeus_kfp.pipelines.demo").joinpath("fake_nvml.c")) as source:
        subprocess.run([compiler, *flags, "-o", str(target), str(source), "-lm"], check=True)
    return target


@contextmanager
def fake_gpu(folder: Path) -> Iterator[None]:
    """Let every process that is started inside the block find one GPU, whose state lies in a folder."""
    library = build(folder)
    variables = {
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, (str(library.parent), os.environ.get("LD_LIBRARY_PATH")))),
        "FAKE_NVML_GPUS": "1",
        "FAKE_NVML_NAME": "simulated GPU",
        "FAKE_NVML_CURVE": "wall",
        "FAKE_NVML_STATE": str(folder / "state"),
        "FAKE_NVML_LIMIT_MW": "300000",
        "ZEUS_KFP_LIMITS_FOLDER": str(folder / "limits"),
        "ZEUS_KFP_POWER_STEP_W": os.environ.get("ZEUS_KFP_POWER_STEP_W") or "50",
        STEP_VARIABLE: "1",
    }
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def step_on_gpu() -> Callable[[int], None]:
    """Return what a step of so many samples does on the GPU: nothing, but it takes its time under the power limit."""
    if not os.environ.get(STEP_VARIABLE):
        return lambda samples: None
    library = ctypes.CDLL(LIBRARY)
    library.fake_nvml_slowdown.restype = ctypes.c_double

    def step(samples: int) -> None:
        time.sleep((_FIXED_STEP_S + _SAMPLE_S * samples) * library.fake_nvml_slowdown(0))

    return step
