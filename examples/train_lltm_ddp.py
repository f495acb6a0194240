"""Trains the model of train_lltm.py by several processes, each with its part of every batch.

torchrun --nproc-per-node=2 examples/train_lltm_ddp.py --checkpoint checkpoints --plot loss.png

It takes a GPU for each process of a node and NCCL, or gloo on CPUs. The model is replicated
(DistributedDataParallel) or, with --fsdp, shared (fully_shard). Started without torchrun it is a
job of one process. The losses are the same, to rounding, for any number of processes.

With --checkpoint it goes on from the last checkpoint in that folder, which all nodes must see, if
there is one: in a job that is started again, and after the death of a process under
`torchrun --max-restarts=3`. Another number of processes, and the other of --fsdp and not, can take
it, too.
"""

import contextlib
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

NAMES = "[0-9]" * 8  # of checkpoints: how many steps had been made


def join(device):
    """Makes this process one of the job's; the device that is its own."""
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        if device.index >= torch.cuda.device_count():
            raise SystemExit(
                f"process {device.index} of this node has no GPU, there are "
                f"{torch.cuda.device_count()}: start as many processes by torchrun's "
                "--nproc-per-node, or train on the CPUs with --device cpu"
            )
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store, rank, ranks = meet()
    if BATCH % ranks:
        raise SystemExit(f"{ranks} processes cannot share a batch of {BATCH} equally")
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks)
    return device


def meet():
    """(store, rank, processes): where this process finds the others of the job."""
    if "RANK" not in os.environ:
        return dist.HashStore(), 0, 1
    store, rank, ranks = next(dist.rendezvous("env://"))
    # After a restart torchrun's store still has the addresses of the processes that have died
    # (pytorch/pytorch#135712). Several nodes count restarts apart: for them see docs/scaling.md.
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        store = dist.PrefixStore(os.environ["TORCHELASTIC_RESTART_COUNT"], store)
    return store, rank, ranks


def distributed(model, fsdp):
    """The model, of which each process has a copy or, with FSDP, a part."""
    if fsdp:
        return fully_shard(model)
    device = next(model.parameters()).device
    return DistributedDataParallel(model, [device] if device.type == "cuda" else None)


def train(model, options, device):
    """The error of the whole batch before every step, as a CPU tensor."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    optimizer = optimizer_of(model)
    losses = load(options.checkpoint, model, optimizer) if options.checkpoint else []
    epochs = range(len(losses), options.epochs)
    for epoch in track(epochs, "training", console=Console(stderr=True), disable=rank > 0):
        # Of every epoch all processes draw the same batch, before a restart and after it.
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
    """What a checkpoint holds: the same for any number of processes, with FSDP or not."""
    parameters, moments = get_state_dict(model, optimizer)
    return {"model": parameters, "optimizer": moments, "losses": [float(x) for x in losses]}


def save(folder, model, optimizer, losses):
    """Writes a checkpoint beside the last one, which is then removed."""
    path = folder / f"{len(losses):08}"
    checkpoint.save(state(model, optimizer, losses), checkpoint_id=path)
    if dist.get_rank() == 0:
        for other in set(folder.glob(NAMES)) - {path}:
            shutil.rmtree(other, ignore_errors=True)


def last_checkpoint(folder):
    """The path of the last one that is whole; None without one."""
    # .metadata is written last: what was being written when a process died has none.
    return max((path.parent for path in folder.glob(f"{NAMES}/.metadata")), default=None)


def load(folder, model, optimizer):
    """Takes the last checkpoint, if there is one; the losses until then."""
    last = [last_checkpoint(folder) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(last)  # nodes may see a new file of a file server later than others
    if last[0] is None:
        return []
    found = state(model, optimizer, [])
    checkpoint.load(found, checkpoint_id=last[0])
    set_state_dict(
        model, optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"]
    )
    if dist.get_rank() == 0:
        print(f"going on from {last[0]}, after {len(found['losses'])} steps")
    return found["losses"]


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--fsdp", action="store_true", help="share the model by fully_shard")
    arguments.add_argument(
        "--checkpoint", type=Path, metavar="DIR", help="go on from the last one there, write there"
    )
    arguments.add_argument(
        "--every",
        type=command_line.positive,
        default=10,
        metavar="N",
        help="steps between checkpoints (default: 10)",
    )
    # One of the processes says what all would.
    with contextlib.redirect_stdout(None if int(os.environ.get("RANK", 0)) else sys.stdout):
        options = command_line.parse(arguments, "lltm")
    device = join(options.device)
    torch.manual_seed(0)
    # No name for the model here: it has to go before the process group that it uses does.
    losses = train(distributed(Adder(options.state).to(device), options.fsdp), options, device)
    if dist.get_rank() == 0:
        report(losses, options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
