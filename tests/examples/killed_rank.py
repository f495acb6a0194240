"""Runs train_lltm_ddp.py, but rank 1 kills itself after its second checkpoint, once."""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import train_lltm_ddp

save, checkpoints = train_lltm_ddp.save, []


def save_and_die(*arguments):
    save(*arguments)
    checkpoints.append(arguments)
    is_first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    if is_first and os.environ["RANK"] == "1" and len(checkpoints) == 2:
        os.kill(os.getpid(), signal.SIGKILL)


train_lltm_ddp.save = save_and_die
train_lltm_ddp.main()
