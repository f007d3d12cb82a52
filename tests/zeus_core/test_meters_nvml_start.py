"""The driver's library that is missing, or there and won't open."""

import pynvml
import pytest

from zeus_kfp.zeus_core.meters.nvml_start import NvmlUnavailableError, start_nvml


@pytest.fixture
def fail(fake_gpus, tmp_path):
    def start(code, has_device):
        if has_device:
            (tmp_path / "nvidiactl").write_text("")
        fake_gpus.set(INIT=str(code))
        with pytest.raises(NvmlUnavailableError) as raised:
            start_nvml(pynvml, tmp_path)
        return raised.value

    return start


@pytest.mark.parametrize(
    ("code", "has_device", "is_said", "gpus_left_out"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, False, False, False),
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, True, True, True),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, False, True, False),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, True, True, True),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, False, True, True),
        (pynvml.NVML_ERROR_NO_PERMISSION, False, True, True),
        (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, False, True, True),
    ],
)
def test_only_a_machine_without_any_gpu_says_nothing(fail, code, has_device, is_said, gpus_left_out):
    error = fail(code, has_device)
    assert (bool(error.advice), error.gpus_left_out) == (is_said, gpus_left_out)


def test_a_container_that_lacks_the_library_alone_is_told_how_to_get_it(fail):
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in fail(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, True).advice
