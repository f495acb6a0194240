"""Forks that load an extension at the same time: benchmarks.scaling starts this module.

python -m benchmarks.together WAY PROCESSES ARGUMENTS

It prints a line for each fork: when it began, when it had the module, and the module's value. The
forks have imported torch, and nothing of a loader: its import is a part of the time.
"""

import gc
import json
import os
import sys
import time

import torch  # noqa: F401  64 imports would take longer than the rest

from benchmarks.worker import FUNCTIONS


def main():
    way, processes, arguments = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    # In a fork, a collection copies the pages of all of PyTorch's objects. That takes 0.1 s of CPU
    # time, which a rank does not spend: it is no fork.
    gc.freeze()
    (start, start_of_all), (lines, line) = os.pipe(), os.pipe()
    for _ in range(processes):
        if os.fork() == 0:
            os.close(start_of_all)
            os.dup2(2, 1)  # what PyTorch's load prints is no line
            os.read(start, 1)  # until this end is closed everywhere
            began = time.monotonic()
            value = FUNCTIONS[way](**arguments).value()
            os.write(line, f"{json.dumps([began, time.monotonic(), value])}\n".encode())
            os._exit(0)
    os.close(line)
    time.sleep(0.2)  # until all wait
    os.close(start_of_all)
    sys.stdout.write(os.fdopen(lines).read())


if __name__ == "__main__":
    main()
