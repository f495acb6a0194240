"""Trains the model of train_lltm.py in several processes, each with its share of every batch.

torchrun --nproc-per-node=2 examples/train_lltm_ddp.py --checkpoint checkpoints --plot loss.png

Each process uses one GPU of its node with NCCL, or the CPU with gloo. The model is replicated
(DistributedDataParallel) or, with --fsdp, sharded (fully_shard). Without torchrun the job has one
process. The losses do not depend on the number of processes, except for rounding.

With --checkpoint training resumes from the last checkpoint in that folder, if there is one: when
the job is started again, and when a process dies under `torchrun --max-restarts=3`. All nodes must
see the folder. The number of processes may change between runs, and so may --fsdp.
"""

import contextlib
import gc
import os
import shutil
import sys
from pathlib import Path

import command_line
import torch
import torch.distributed as dist
from rich.console import Console
from rich.progress import track
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from train_lltm import BATCH, Adder, draw, error, optimizer_of, parser, report

CHECKPOINTS = "[0-9]" * 8  # a checkpoint is named by its number of steps


def join(device):
    """Adds this process to the job's process group and returns its device."""
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        if device.index >= torch.cuda.device_count():
            raise SystemExit(
                f"process {device.index} of this node has no GPU: the node has "
                f"{torch.cuda.device_count()}. Set torchrun's --nproc-per-node to that number, or "
                "train on the CPU with --device cpu"
            )
        torch.cuda.set_device(device)
    store, rank, ranks = meet()
    if BATCH % ranks:
        raise SystemExit(f"a batch of {BATCH} cannot be divided among {ranks} processes")
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks)
    return device


def meet():
    """Returns the store in which the job's processes meet, this rank and the number of ranks."""
    if "RANK" not in os.environ:
        return dist.HashStore(), 0, 1
    store, rank, ranks = next(dist.rendezvous("env://"))
    # After a restart torchrun's store still holds the addresses of the dead processes
    # (pytorch/pytorch#135712). With several nodes each counts its own restarts, so the prefixes
    # would differ: see docs/scaling.md.
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        store = dist.PrefixStore(os.environ["TORCHELASTIC_RESTART_COUNT"], store)
    return store, rank, ranks


def distributed(model, fsdp):
    """Wraps a model so that each process holds a copy of it or, with FSDP, a shard."""
    if fsdp:
        return fully_shard(model)
    device = next(model.parameters()).device
    return DistributedDataParallel(model, [device] if device.type == "cuda" else None)


def train(model, options, device):
    """Trains the model; returns the complete batch's error before each step, as a CPU tensor."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    optimizer = optimizer_of(model)
    losses = load(options.checkpoint, model, optimizer) if options.checkpoint else []
    epochs = range(len(losses), options.epochs)
    if not epochs and rank == 0:
        done = f"the checkpoint has {len(losses)} steps, --epochs is {options.epochs}"
        print(f"{done}: nothing is left to train")
    hidden = rank > 0 or not epochs
    for epoch in track(epochs, "training", console=Console(stderr=True), disable=hidden):
        # In an epoch all processes draw the same batch, also after a restart.
        batch = draw(options.length, torch.Generator().manual_seed(epoch))
        optimizer.zero_grad()
        loss = error(model, batch[:, rank::ranks].to(device))
        loss.backward()
        optimizer.step()
        mean = loss.detach() / ranks
        dist.all_reduce(mean)
        losses.append(mean)
        if options.checkpoint and len(losses) % options.every == 0:
            save(options.checkpoint, model, optimizer, losses)
    return torch.stack([torch.as_tensor(loss, device=device) for loss in losses]).cpu()


def state(model, optimizer, losses):
    """Returns a checkpoint's content, which depends neither on the number of ranks nor on FSDP."""
    parameters, moments = get_state_dict(model, optimizer)
    return {"model": parameters, "optimizer": moments, "losses": [float(x) for x in losses]}


def save(folder, model, optimizer, losses):
    """Writes a checkpoint, then removes the previous one."""
    path = folder / f"{len(losses):08}"
    checkpoint.save(state(model, optimizer, losses), checkpoint_id=path)
    if dist.get_rank() == 0:
        for other in set(folder.glob(CHECKPOINTS)) - {path}:
            shutil.rmtree(other, ignore_errors=True)


def last_checkpoint(folder):
    """Returns the path of the last complete checkpoint in a folder, or None."""
    # .metadata is written last, so an incomplete checkpoint has none.
    return max((path.parent for path in folder.glob(f"{CHECKPOINTS}/.metadata")), default=None)


def load(folder, model, optimizer):
    """Loads the last checkpoint, if there is one, and returns its losses."""
    last = [last_checkpoint(folder) if dist.get_rank() == 0 else None]
    # On a network file system some nodes see a new file later than others.
    dist.broadcast_object_list(last)
    if last[0] is None:
        return []
    found = state(model, optimizer, [])
    checkpoint.load(found, checkpoint_id=last[0])
    set_state_dict(
        model, optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"]
    )
    if dist.get_rank() == 0:
        print(f"resuming from {last[0]}, after {len(found['losses'])} steps")
    return found["losses"]


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--fsdp", action="store_true", help="shard the model with fully_shard")
    arguments.add_argument(
        "--checkpoint", type=Path, metavar="DIR", help="resume from this folder and save to it"
    )
    arguments.add_argument(
        "--every",
        type=command_line.at_least(1),
        default=10,
        metavar="N",
        help="steps between checkpoints (default: 10)",
    )
    # Only rank 0 prints: all others would print the same.
    with contextlib.redirect_stdout(None if int(os.environ.get("RANK", 0)) else sys.stdout):
        options = command_line.parse(arguments, "lltm")
    device = join(options.device)
    torch.manual_seed(0)
    losses = train(distributed(Adder(options.state).to(device), options.fsdp), options, device)
    gc.collect()  # frees the model, which is in a cycle, before the process group that it uses
    if dist.get_rank() == 0:
        report(losses, options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
