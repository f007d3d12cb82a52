import pytest

from zeus_kfp.components.train_with_profiling.out_of_memory import out_of_memory_line

TRACEBACK = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>']
CUDA = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."


@pytest.mark.parametrize(
    "line",
    [
        CUDA,
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity)",
        "RuntimeError: CUDA error: out of memory",
        "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB",
        "RuntimeError: MPS backend out of memory (MPS allocated: 17.98 GB, other allocations: 1.2 GB)",
        "RuntimeError: XPU out of memory. Tried to allocate 48.00 GiB",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you",
        "RuntimeError: [enforce fail] data. DefaultCPUAllocator: not enough memory: you tried to allocate 80 bytes.",
        "MemoryError",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.28 TiB for an array with shape (1000000,)",
        "[rank0]: MemoryError: cannot allocate",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes.",
        "jax.errors.JaxRuntimeError: Ran out of memory in memory space hbm. Used 20G of 15G",
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[8192]",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "OSError: [Errno 12] Cannot allocate memory",
        "RuntimeError: DataLoader worker (pid 4151) is killed by signal: Killed. ",
    ],
)
def test_the_texts_of_frameworks_are_known(line):
    assert out_of_memory_line([*TRACEBACK, line]) == line.strip()


@pytest.mark.parametrize(
    "line",
    [
        "KeyError: 'label'",
        "ValueError: use a smaller batch if memory is short",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied",
        "RuntimeError: CUDA error: device-side assert triggered",
        "ModuleNotFoundError: No module named 'memory'",
        "zoom when allocating seats",
        "RESOURCE_EXHAUSTED: quota of requests per minute",
        "MyMemoryErrorHandler installed",
        "",
    ],
)
def test_other_failures_are_not_taken_for_it(line):
    assert out_of_memory_line([*TRACEBACK, line]) == ""


def test_a_lack_of_memory_that_was_survived_is_not_why_it_failed():
    survived = [*TRACEBACK, CUDA, "skipping this batch"]
    assert out_of_memory_line([*survived, "epoch 2", *TRACEBACK, "KeyError: 'label'"]) == ""
    assert out_of_memory_line([f"warning: {CUDA}", *["step"] * 30, "Segmentation fault"]) == ""


@pytest.mark.parametrize(
    "middle",
    [
        ["", "During handling of the above exception, another exception occurred:", ""],
        ["", "The above exception was the direct cause of the following exception:", ""],
    ],
)
def test_the_cause_of_a_chained_exception_counts(middle):
    lines = [*TRACEBACK, CUDA, *middle, *TRACEBACK, "RuntimeError: training failed"]
    assert out_of_memory_line(lines) == CUDA


def test_the_report_of_torchrun_does_not_hide_it():
    worker = [f"[rank1]: {line}" for line in [*TRACEBACK, CUDA]]
    launcher = [*TRACEBACK, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", "train.py FAILED"]
    assert out_of_memory_line([*worker, "W0101 closing signal SIGTERM", *launcher]) == f"[rank1]: {CUDA}"


def test_lines_after_the_traceback_do_not_hide_it():
    assert out_of_memory_line([*TRACEBACK, CUDA, *["cleaning up"] * 50]) == CUDA
