"""Jobs of several processes have the losses of one process with the same batches."""

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from tests.support.extension import ROOT

SCRIPT = ROOT / "examples" / "train_lltm_ddp.py"
SMALL = ["--length", "4", "--state", "8"]
SETTINGS = {"OMP_NUM_THREADS": "1"}


@pytest.fixture
def alone(import_example):
    """Trains in this process without a process group: alone(epochs) returns the losses."""

    def train(epochs):
        lltm = import_example("train_lltm")
        torch.manual_seed(0)
        model = lltm.Adder(8)
        optimizer, losses = lltm.optimizer_of(model), []
        for epoch in range(epochs):
            optimizer.zero_grad()
            loss = lltm.error(model, lltm.draw(4, torch.Generator().manual_seed(epoch)))
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses)

    return train


def losses_in(folder):
    """Returns the losses in the folder's only checkpoint."""
    (path,) = [path.parent for path in folder.glob("*/.metadata")]
    dcp_to_torch_save(path, folder / "losses.pt")
    return torch.tensor(torch.load(folder / "losses.pt")["losses"])


@pytest.mark.slow
def test_losses_are_those_of_one_process_and_a_job_resumes_from_its_checkpoint(
    torchrun, alone, tmp_path
):
    options = [*SMALL, "--checkpoint", tmp_path, "--every", "5"]
    torchrun(2, SCRIPT, *options, "--epochs", "10", check=True, **SETTINGS)
    torch.testing.assert_close(losses_in(tmp_path), alone(10), rtol=1e-4, atol=0)
    half_written = tmp_path / "00000015"
    half_written.mkdir()
    (half_written / "__0_0.distcp").write_bytes(b"half of it")
    other = tmp_path / "of the user"
    other.mkdir()
    options += ["--epochs", "20", "--fsdp"]
    finished = torchrun(2, SCRIPT, *options, check=True, **SETTINGS)
    assert "resuming from" in finished.stdout
    assert "after 10 steps" in finished.stdout
    torch.testing.assert_close(losses_in(tmp_path), alone(20), rtol=1e-4, atol=0)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"00000020", other.name}


@pytest.mark.slow
def test_a_job_survives_the_death_of_a_process(python, alone, tmp_path):
    finished = python(
        *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"),
        *(ROOT / "tests" / "examples" / "killed_rank.py", *SMALL, "--epochs", "20"),
        *("--checkpoint", tmp_path, "--every", "5"),
        check=True,
        **SETTINGS,
    )
    assert "exitcode: -9" in finished.stderr
    assert "after 10 steps" in finished.stdout
    torch.testing.assert_close(losses_in(tmp_path), alone(20), rtol=1e-4, atol=0)


def test_a_batch_that_cannot_be_divided_is_refused(import_example, monkeypatch):
    example = import_example("train_lltm_ddp")
    monkeypatch.setattr(example, "meet", lambda: (None, 0, 3))
    with pytest.raises(SystemExit, match="a batch of 256 cannot be divided among 3 processes"):
        example.join(torch.device("cpu"))


def test_more_processes_than_gpus_is_refused(import_example, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(SystemExit, match="process 1 of this node has no GPU: the node has 1"):
        import_example("train_lltm_ddp").join(torch.device("cuda"))


@pytest.mark.gpu
@pytest.mark.parametrize("fsdp", [[], ["--fsdp"]], ids=["ddp", "fsdp"])
def test_losses_of_two_gpus_are_those_of_one_cpu(torchrun, alone, tmp_path, fsdp):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    options = [*SMALL, "--checkpoint", tmp_path, "--epochs", "20", *fsdp]
    torchrun(2, SCRIPT, *options, check=True, **SETTINGS)
    torch.testing.assert_close(losses_in(tmp_path), alone(20), rtol=1e-3, atol=0)
