"""The cache of kernels that NVRTC compiled, in the folders of builds (cache/store.py).

<cache>/cuda_kernel.<name>/<request key>/<build key>/
    cuda_kernel.<name>  the cubin, whose access time is the last use
    manifest.json       the headers that the source includes, and what `list` shows

`list`, `clean` and `prune` treat them as builds. A hit reads the headers again: they are few, and
those of CUDA's own folder are represented by NVRTC's version and the stat of cuda.h.
"""

import contextlib
import os
import platform
import re
import tempfile
import time

import torch

from _jit_loader.cache import cache_folder, check_trusted, digest_of, readonly_caches
from _jit_loader.cache.files import write_checked, write_whole
from _jit_loader.cache.store import MANIFEST, read_manifest
from _jit_loader.key.contents import read_digest


def title_of_kernel(expression):
    """Returns the name of a kernel's builds: 'cuda_kernel.scale_float' for 'scale<float>'."""
    return "cuda_kernel." + re.sub(r"\W+", "_", expression, flags=re.ASCII).strip("_")[:80]


def find(title, key):
    """Returns (code, symbol) of the build that fits the headers as they are, or None."""
    for cache in [cache_folder(), *readonly_caches()]:
        for folder in _folders(os.path.join(cache, title, key)):
            manifest = read_manifest(folder)
            if manifest is None or not _fits(manifest):
                continue
            path = os.path.join(folder, title)
            check_trusted(path)
            with contextlib.suppress(OSError), open(path, "rb") as file:
                code = file.read()
                if digest_of(code) == manifest["library"]:
                    return code, manifest["symbol"]
    return None


def describe(files, absent):
    """Returns the part of a manifest about the headers, with their digests."""
    return {"files": {path: read_digest(path) for path in files}, "absent": absent}


def publish(title, key, headers, arch, variant, code, symbol):
    """Stores a kernel. If the cache cannot be written, the next process compiles it again.

    headers: describe() before the compilation. Nothing is stored if one has changed since.
    """
    if headers != describe(headers["files"], headers["absent"]):
        return
    request = {
        "PyTorch": [torch.__version__, None, torch.version.cuda],
        "with CUDA": True,
        "C++ flags": [],
        "machine": platform.machine(),
        "GPU architectures": [f"code={arch}"],
        "nvcc flags": [],
        "environment variables": {},
        "variant": variant,
    }
    manifest = {
        **headers,
        "name": title,
        "request": request,
        "created": time.time(),
        "library": digest_of(code),
        "symbol": symbol,
    }
    slot = os.path.join(cache_folder(), title, key)
    with contextlib.suppress(OSError):  # also if another process has published it before
        os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
        os.makedirs(slot, mode=0o700, exist_ok=True)
        with open(os.path.join(slot, "lock"), "ab"):  # pruning takes it, and so knows the slot
            pass
        folder = tempfile.mkdtemp(prefix=".new-", dir=slot)
        write_whole(os.path.join(folder, title), code)
        write_checked(os.path.join(folder, MANIFEST), manifest)
        os.rename(folder, os.path.join(slot, digest_of([headers, manifest["library"]])))


def _fits(manifest):
    return all(read_digest(path) == digest for path, digest in manifest["files"].items()) and not (
        any(map(os.path.exists, manifest["absent"]))
    )


def _folders(slot):
    with contextlib.suppress(OSError):
        return [
            entry.path for entry in os.scandir(slot) if not entry.name.startswith((".", "lock"))
        ]
    return []
