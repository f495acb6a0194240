"""The number of parallel compilers depends on cores, memory and the container's limits."""

import os

import pytest

from _jit_loader.system import jobs
from tests.support.extension import write_files

GB = 1000**3


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Writes /proc and /sys from {path: text}; the default is 16 cores and 1 TB of memory."""

    def make(files):
        plain = {"proc/meminfo": f"MemFree: 1 kB\nMemAvailable:   {10**9} kB\n"}
        write_files(tmp_path / "root", {**plain, **files})

    monkeypatch.delenv("MAX_JOBS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    monkeypatch.setattr(jobs, "ROOT", tmp_path / "root")
    return make


@pytest.mark.parametrize(
    ("free_gb", "expected"), [(1000, 16), (31, 10), (7, 2), (2, 1), (0, 1), ("unknown", 16)]
)
def test_cores_and_free_memory_limit_the_jobs(machine, free_gb, expected):
    free = "" if free_gb == "unknown" else f"MemAvailable: {free_gb * GB // 1024} kB\n"
    machine({"proc/meminfo": f"MemTotal: {10**9} kB\n{free}"})
    assert jobs.parallel_jobs() == expected


V2 = "0::/user/me\n"


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        (V2, {"user/me/cpu.max": "400000 100000"}, 4),
        (V2, {"user/cpu.max": "250000 100000"}, 2),  # the limit of the parent group
        ("", {"cpu.max": "50000 100000"}, 1),  # a container sees its limit at the root
        (V2, {"user/me/cpu.max": "max 100000"}, 16),
        (
            V2,
            {
                "user/memory.max": 20 * GB,
                "user/memory.current": 12 * GB,
                "user/memory.stat": f"anon 1\ninactive_file {2 * GB}",
            },
            3,
        ),
        (V2, {"user/memory.max": "max", "user/memory.current": 12 * GB}, 16),
    ],
)
def test_container_limits_the_jobs(machine, groups, files, expected):
    limits = {f"sys/fs/cgroup/{name}": f"{value}\n" for name, value in files.items()}
    machine({"proc/self/cgroup": groups, **limits})
    assert jobs.parallel_jobs() == expected


def test_max_jobs_overrides_every_limit(machine, monkeypatch):
    machine({"proc/meminfo": "MemAvailable: 1 kB\n"})
    monkeypatch.setenv("MAX_JOBS", "40")
    assert jobs.parallel_jobs() == 40
    monkeypatch.setenv("MAX_JOBS", "many")
    assert jobs.parallel_jobs() == 1


def test_max_jobs_limits_the_running_compilers(tiny, monkeypatch):
    """With MAX_JOBS=1, no two compilers run at the same time."""
    busy = tiny.folder.parent / "busy"
    text = tiny.compiler.read_text().replace("exec ", "")
    alone = f'case "$*" in *" -c "*-o*.o*) mkdir {busy} || exit 9; sleep 0.1;; esac\n'
    tiny.compiler.write_text(
        text.replace("echo", alone + "echo", 1) + f"code=$?\nrmdir {busy} 2>/dev/null; exit $code\n"
    )
    monkeypatch.setenv("MAX_JOBS", "1")
    assert tiny.value() == 101


@pytest.mark.parametrize(("jobs_at_once", "expected_gb"), [(2, 20), (100, 3)])
def test_compilers_share_the_free_memory(machine, jobs_at_once, expected_gb):
    machine({"proc/meminfo": f"MemAvailable: {40 * GB // 1024} kB\n"})
    assert jobs.memory_per_compiler(jobs_at_once) == pytest.approx(expected_gb * GB)
