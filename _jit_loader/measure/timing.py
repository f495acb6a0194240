"""Times functions in turn, so that other load affects all of them.

benchmarks/timing.py takes its samples with this module too.
"""

import contextlib
import importlib.util
import os
import time
from statistics import median

import torch

from _jit_loader.cache import cache_folder
from _jit_loader.cache.files import read_checked, write_checked

# Several times the L2 cache of any GPU (50 MB on an H200), and more than the caches of a CPU.
LARGE_BYTES = 256 << 20
# A sample is a block of calls. Writing LARGE_BYTES before each call takes 0.1 ms on a GPU.
BLOCK_SECONDS = {"cpu": 1e-3, "cuda": 1e-2}
SHORTEST_CALL = {"cpu": 1e-7, "cuda": 1e-4}
SECONDS = {"cpu": 0.2, "cuda": 0.1}  # for the samples of one function
WARM_UP, FEWEST, MOST = 3, 7, 100  # rounds; fewer than 6 have no 95% interval


def gpu_sample(run, before=torch.cuda.synchronize):
    """Starts before() and run() on a GPU; returns a function that waits for run()'s seconds."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before()
    begin.record()
    _results = run()
    end.record()

    def read():
        end.synchronize()
        return begin.elapsed_time(end) / 1000

    return read


def cpu_sample(run, calls=1):
    """Calls run(); returns a function that returns its seconds. The caches are not flushed."""
    started = time.perf_counter()
    for _ in range(calls):
        _results = run()
    seconds = (time.perf_counter() - started) / calls
    return lambda: seconds


def in_turn(functions, device):
    """Returns, for each function, a list of the seconds of a call. Each has been called before.

    On a GPU it is the device's time, with the inputs in memory and not in the L2 cache.
    """
    kind = device.type
    with torch.cuda.device(device if kind == "cuda" else -1):
        once = gpu_sample if kind == "cuda" else cpu_sample
        estimates = [max(once(function)(), SHORTEST_CALL[kind]) for function in functions]
        rounds = int(SECONDS[kind] / max(*estimates, BLOCK_SECONDS[kind]))
        samplers = [_sampler(*pair, kind) for pair in zip(functions, estimates)]
        samples = [[] for _ in functions]
        for number in range(-WARM_UP, min(max(rounds, FEWEST), MOST)):
            for sampler, found in zip(samplers, samples):
                seconds = sampler()
                if number >= 0:
                    found.append(seconds)
    return samples


def _sampler(function, seconds, kind):
    """Returns a function that takes a sample of a function; seconds: of one call, about."""
    calls = max(1, int(BLOCK_SECONDS[kind] / seconds))
    if kind == "cpu":
        return lambda: cpu_sample(function, calls)()
    if calls > 1 and importlib.util.find_spec("triton"):  # do_bench makes at least 8 calls
        from triton.testing import do_bench

        block = 1000 * BLOCK_SECONDS[kind]
        return lambda: do_bench(function, warmup=1, rep=block, return_mode="median") / 1000
    flush = torch.empty(LARGE_BYTES, dtype=torch.uint8, device="cuda").zero_
    return lambda: median([read() for read in [gpu_sample(function, flush) for _ in range(calls)]])


def interval(samples):
    """Returns the ends of the 95% interval of the median, which are two of the samples.

    How many independent samples are below the median is binomially distributed.
    """
    below = int((len(samples) - 1.96 * len(samples) ** 0.5 - 1) / 2)
    return sorted(samples)[below], sorted(samples)[-1 - below]


def name_of(device):
    """Returns the name of a GPU, or the number of CPU threads that PyTorch uses."""
    is_gpu = device.type == "cuda"
    return torch.cuda.get_device_name(device) if is_gpu else f"{torch.get_num_threads()} threads"


def copy_bandwidth(device):
    """Returns the bytes per second, read plus written, of a copy too large for any cache.

    It is measured once per machine and device, and then kept in the cache.
    """
    name = f"{os.uname().nodename}: {name_of(device)}"
    path = os.path.join(cache_folder(), "copy-bandwidth.json")
    known = read_checked(path) or {}
    if name not in known:
        x, y = torch.zeros(2, LARGE_BYTES, dtype=torch.uint8, device=device)
        known[name] = 2 * LARGE_BYTES / min(in_turn([lambda: x.copy_(y)], device)[0])
        with contextlib.suppress(OSError):  # a read-only cache
            write_checked(path, known)
    return known[name]
