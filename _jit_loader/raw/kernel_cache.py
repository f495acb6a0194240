"""The cache of kernels that NVRTC compiled, in the folders of builds (cache/store.py).

<cache>/cuda_kernel.<name>/<request key>/<build key>/
    cuda_kernel.<name>  the cubin, whose access time is the last use
    manifest.json       the headers that the source includes, and what `list` shows

`list`, `clean` and `prune` treat them as builds. A hit compares the stats of the headers, CUDA's
own among them, and reads those whose stats differ.
"""

import contextlib
import os
import tempfile
import time

from _jit_loader.cache import cache_folder, check_trusted, digest_of, readonly_caches
from _jit_loader.cache.files import read_checked, write_atomically, write_checked

MANIFEST = "manifest.json"  # as in cache/store.py, whose import would take a tenth of a hit


def title_of_kernel(expression):
    """Returns the name of a kernel's builds: 'cuda_kernel.scale_float' for 'scale<float>'."""
    letters = (letter if letter.isalnum() and letter.isascii() else " " for letter in expression)
    return "cuda_kernel." + "_".join("".join(letters).split())[:80]


def find(title, key):
    """Returns (code, symbol, parameters) of the build that fits the headers as they are, or None.

    parameters: as parameters.Signature.rows returns them.
    """
    for cache in [cache_folder(), *readonly_caches()]:
        for folder in _folders(os.path.join(cache, title, key)):
            manifest = read_checked(os.path.join(folder, MANIFEST))
            if manifest is None or not _fits(manifest):
                continue
            path = os.path.join(folder, title)
            check_trusted(path)
            with contextlib.suppress(OSError), open(path, "rb") as file:
                code = file.read()
                if digest_of(code) == manifest["library"]:
                    return code, manifest["symbol"], manifest["parameters"]
    return None


def describe(closure):
    """Returns the part of a manifest about the headers of an includes.Closure."""
    from _jit_loader.cache.memo import is_settled, stamp
    from _jit_loader.key.contents import read_digest

    # The stats come first: a later change shows in them, or when publish() calls this again.
    paths = [*closure.files, *closure.system]
    stamps = {path: found for path in paths if is_settled(found := stamp(path))}
    return {
        "files": {path: read_digest(path) for path in closure.files},
        "system": {path: read_digest(path) for path in closure.system},
        "absent": closure.absent,
        "stamps": stamps,
    }


def publish(title, key, closure, headers, request, code, symbol, parameters):
    """Stores a kernel. If the cache cannot be written, the next process compiles it again.

    headers: describe() before the compilation. Nothing is stored if one has changed since.
    request: what `list` shows of it.
    """
    now = describe(closure)
    if any(now[kind] != headers[kind] for kind in ("files", "system")):
        return
    manifest = {
        **headers,
        "name": title,
        "request": request,
        "created": time.time(),
        "library": digest_of(code),
        "symbol": symbol,
        "parameters": parameters,
    }
    slot = os.path.join(cache_folder(), title, key)
    with contextlib.suppress(OSError):  # also if another process has published it before
        os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
        os.makedirs(slot, mode=0o700, exist_ok=True)
        with open(os.path.join(slot, "lock"), "ab"):  # pruning locks it, and recognises slots by it
            pass
        folder = tempfile.mkdtemp(prefix=".new-", dir=slot)
        write_atomically(os.path.join(folder, title), code)
        write_checked(os.path.join(folder, MANIFEST), manifest)
        os.rename(folder, os.path.join(slot, digest_of([headers, manifest["library"]])))


def _fits(manifest):
    stamps = manifest["stamps"]

    def is_same(path, *digests):
        from _jit_loader.cache.memo import stamp  # a kernel without headers does not need it

        found = stamp(path)
        if found is not None and list(found) == stamps.get(path):
            return True
        from _jit_loader.key.contents import read_digest  # most hits need no digest

        return read_digest(path) in digests

    # As for every build, a system header that this machine lacks is not a change.
    return (
        all(is_same(path, digest) for path, digest in manifest["files"].items())
        and all(is_same(path, digest, None) for path, digest in manifest["system"].items())
        and not any(map(os.path.exists, manifest["absent"]))
    )


def _folders(slot):
    with contextlib.suppress(OSError):
        return [
            entry.path for entry in os.scandir(slot) if not entry.name.startswith((".", "lock"))
        ]
    return []
