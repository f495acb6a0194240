"""Runs torchrun with forked ranks: python -m tests.support.torchrun_by_fork RANKS script.py ...

It uses torchrun's agent. Forked ranks need not import PyTorch or the modules in $IMPORTS again,
which takes seconds.
"""

import importlib
import os
import runpy
import sys

from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def run_rank(path, arguments):
    sys.argv = [path, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    runpy.run_path(path, run_name="__main__")


@record
def main():
    ranks, path, *arguments = sys.argv[1:]
    for name in os.environ.get("IMPORTS", "").split():
        importlib.import_module(name)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=int(ranks),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        run_id="tests",
        start_method="fork",
        max_restarts=0,
    )
    elastic_launch(config, run_rank)(path, arguments)


if __name__ == "__main__":
    main()
