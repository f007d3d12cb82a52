"""Fixtures for every room: GPUs that the real nvidia-ml-py finds on a machine without any."""

import ctypes
import os
import shutil

import pytest

from zeus_kfp.pipelines.demo.fake_gpu import build


@pytest.fixture(scope="session")
def fake_nvml_folder(tmp_path_factory):
    """Build the fake NVML; a process finds it with this folder on its LD_LIBRARY_PATH."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) to build the fake NVML with")
    return build(tmp_path_factory.mktemp("nvml")).parent


@pytest.fixture(autouse=True)
def no_rapl(monkeypatch):
    """Let every machine be one without RAPL, so that tests see the same meter everywhere."""
    monkeypatch.setenv("ZEUS_KFP_RAPL_FOLDER", "/nonexistent")


class FakeGpus:
    """GPUs of the fake NVML, in this process and in those that are started with :attr:`environ`."""

    def __init__(self, folder, state, monkeypatch):
        self._folder, self._monkeypatch = folder, monkeypatch
        # A library that is loaded already answers to its name, wherever it came from.
        self.library = ctypes.CDLL(str(folder / "libnvidia-ml.so.1"))
        self.library.fake_nvml_work.argtypes = [ctypes.c_double]
        self.library.fake_nvml_work.restype = ctypes.c_double
        self.set(GPUS="1", STATE=str(state), CURVE="virtual")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setenv("ZEUS_KFP_LIMITS_FOLDER", str(state.with_name("limits")))

    def set(self, **variables):
        """Describe the GPUs; None takes a variable back."""
        for name, value in variables.items():
            if value is None:
                self._monkeypatch.delenv(f"FAKE_NVML_{name}", raising=False)
            else:
                self._monkeypatch.setenv(f"FAKE_NVML_{name}", value)
        return self

    @property
    def environ(self):
        """The environment of another process that shall find the same GPUs."""
        return os.environ | {"LD_LIBRARY_PATH": str(self._folder)}

    def limits_w(self):
        """Return the limits that stand now."""
        import pynvml

        pynvml.nvmlInit()
        try:
            handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
            return [pynvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000 for handle in handles]
        finally:
            pynvml.nvmlShutdown()

    def set_count(self, index=0):
        """Return how often the limit of a GPU was set."""
        return self.library.fake_nvml_set_count(index)

    def work(self, time_s):
        """Do work that takes ``time_s`` without a limit."""
        self.library.fake_nvml_work(time_s)

    def clock(self):
        """Return the time in s that the GPUs go by."""
        return float(self.library.fake_nvml_work(0.0))


@pytest.fixture
def fake_gpus(fake_nvml_folder, tmp_path, monkeypatch):
    """One fake GPU whose counter follows a virtual clock."""
    return FakeGpus(fake_nvml_folder, tmp_path / "gpus", monkeypatch)
