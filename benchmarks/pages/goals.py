"""The goals on the pages: the least ratio of another way's time to ours."""

# {kind of device: {workload: {way: its time over ours, at the largest size}}}
_BANDWIDTH_BOUND = {"eager": 0.98, "compiled": 0.98}
_TRILINEAR = {
    "": {"eager": 6, "compiled": 0.98},
    ", backward for feats": {"eager": 25, "compiled": 1.2},
    ", backward for points": {"eager": 9, "compiled": 0.98},
}
_TRILINEARS = [f"trilinear, F = {features}" for features in (64, 256)]
LARGE = {
    "gpu": {
        "add2": _BANDWIDTH_BOUND,
        "sigmoid": _BANDWIDTH_BOUND,
        "sigmoid backward": _BANDWIDTH_BOUND,
        "sum_single": _BANDWIDTH_BOUND,
        "my_op": {"eager": 1.6, "compiled": 0.98},
        "my_op backward": {"eager": 1.3, "compiled": 0.98},
        "two_norm": {"eager": 1.9, "compiled": 0.98},
        "two_norm backward": {"eager": 1.9, "compiled": 0.98},
        **{name + way: goal for name in _TRILINEARS for way, goal in _TRILINEAR.items()},
    },
    "cpu": {
        "add2": {"eager": 0.95},
        "sigmoid": {"eager": 0.95},
        "sigmoid backward": {"eager": 0.95},
        "sum_single": {"eager": 0.95},
        "my_op": {"eager": 2},
        "my_op backward": {"eager": 2},
        "two_norm": {"eager": 2},
        "two_norm backward": {"eager": 2},
        **{name + way: {"eager": 2} for name in _TRILINEARS for way in _TRILINEAR},
    },
}

# At 2^20 and 2^24 elements on a GPU, for the memory-bound workloads.
MIDDLE = {name: {"eager": 1.0} for name in ("add2", "sigmoid", "sigmoid backward", "sum_single")}

# For a call on 64 floats: {question: (ops that are one operation in PyTorch, the others)}.
CALLS = {"no grad": (1.0, 1.0), "grad, forward": (1 / 1.6, None)}
CALLS["grad, forward and backward"] = CALLS["grad, forward"]
ONE_OPERATION = ("add2", "sigmoid", "sum_single")

# A step of LLTM on a GPU.
LLTM = {
    "small": {"eager": 2.2, "compiled": 2, "reduce-overhead": 1.6},
    "large": {"compiled": 1.0},
}

# A kernel edit in a notebook may take this many times the compilers' time plus these seconds.
NOTEBOOK_OVER_ALONE, NOTEBOOK_SECONDS = 1.15, 0.05
# A save in watch mode may take this many seconds more than the compilers.
WATCH_BEYOND_ALONE = 0.3
# An edit of a kernel's body may take this fraction of the compilers' time: in a running process, in
# a notebook and in watch mode.
LIVE_OVER_ALONE = 0.25
