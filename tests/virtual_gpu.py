"""What a training process does on a GPU of the fake NVML, without taking any time."""

VIRTUAL_GPU = """
import ctypes
work = ctypes.CDLL("libnvidia-ml.so.1").fake_nvml_work
work.argtypes, work.restype = [ctypes.c_double], ctypes.c_double

def follow_the_gpu(trial, ahead_s=0.0):
    trial._instrument._clock = lambda: work(0.0) + ahead_s
"""
"""Source that begins a program: `work` lets a GPU work for so many seconds and returns the moment by its clock."""
