"""Times several calls in interleaved order, so that other load affects all of them."""

import functools
import random
import time

import numpy as np
import torch

from _jit_loader.measure.timing import LARGE_BYTES, cpu_sample, gpu_sample

WARM_UP_ROUNDS = 3
SEED = 0
# The loader accepts a file's stat as proof of its content once the stat is older than 2 s.
SETTLING_SECONDS = 2.5
CLOCKS_RISE_SECONDS = 1
RESAMPLES = 1000
FEW = 3  # rounds; fewer have no interval


def interleaved(calls, rounds, device, batch=1, passes=1):
    """Returns {name: [seconds of one call]}, `rounds` samples for each function in calls.

    A sample is the mean over `passes` passes of function(0), ..., function(batch - 1); the results
    of a pass are kept until it ends. An untimed call of function(0) precedes the sample, so that
    the function that ran before does not affect it.

    On a GPU the time of a single pass is the device's. Memory of several times the size of the L2
    cache is written before it, so that function(i)'s inputs come from memory if no other i reads
    them, and the host has about 70 us to queue the launches. Several passes are like a program's
    loop: nothing is written before them, the device has no other work, and the time is the host's
    if the host is slower than the device. On a CPU the caches are not flushed.
    """
    device = torch.device(device)
    reads = {name: [] for name in calls}
    with torch.cuda.device(device if device.type == "cuda" else -1):
        sample = _gpu_sampler(device, passes) if device.type == "cuda" else cpu_sample
        for name, counts in turns(calls, rounds):
            calls[name](0)
            read = sample(functools.partial(_run, calls[name], batch, passes))
            if counts:
                reads[name].append(read)
        if device.type == "cuda":
            torch.cuda.synchronize()
    return {name: [read() / (batch * passes) for read in reads[name]] for name in calls}


def turns(names, rounds, warm_up=WARM_UP_ROUNDS):
    """Yields (name, whether its sample counts); the order in each round is random."""
    orders = random.Random(SEED)  # the same in every run
    for round_number in range(-warm_up, rounds):
        for name in orders.sample(list(names), len(names)):
            yield name, round_number >= 0


def raise_clocks(device):
    """Keeps the host and a device busy until their clocks have risen."""
    x = torch.ones(1 << 20, device=device)
    began = time.perf_counter()
    while time.perf_counter() < began + CLOCKS_RISE_SECONDS:
        x = (x * 2).clamp(max=1)
        if x.is_cuda:
            torch.cuda.synchronize()


def settle(quick):
    """Waits until the last build or edit no longer affects a load; not in a quick run."""
    if not quick:
        time.sleep(SETTLING_SECONDS)


def quartiles(samples):
    """Returns the first quartile, the median and the third quartile of the samples."""
    return np.quantile(samples, [0.25, 0.5, 0.75]).tolist()


def over(theirs, own):
    """Returns [median(theirs) / median(own), the ends of its 95% bootstrap interval].

    A round is drawn with the samples of both ways, since load on the machine affects both. Fewer
    than three rounds have no interval.
    """
    ratio = quartiles(theirs)[1] / quartiles(own)[1]
    if len(own) < FEW:
        return [ratio]
    rounds = _resamples(len(own))
    theirs, own = (np.median(np.array(samples)[rounds], axis=1) for samples in (theirs, own))
    return [ratio, *np.quantile(theirs / own, [0.025, 0.975]).tolist()]


@functools.cache
def _resamples(count):
    """Returns the rounds of each resample: the same in every run and in every version of numpy."""
    rounds = random.Random(0).choices(range(count), k=count * RESAMPLES)
    return np.array(rounds).reshape(RESAMPLES, count)


def _run(call, batch, passes):
    """Returns the results of the last pass; the caller frees them, which takes time on a CPU."""
    for _ in range(passes):
        results = None
        results = [call(i) for i in range(batch)]
    return results


def _gpu_sampler(device, passes):
    if passes > 1:
        return gpu_sample
    flush = torch.empty(LARGE_BYTES, dtype=torch.uint8, device=device).zero_
    return lambda run: gpu_sample(run, flush)
