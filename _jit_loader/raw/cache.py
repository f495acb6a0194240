"""The cache of kernels that NVRTC compiled, in the folders of builds (cache/store.py).

<cache>/cuda_kernel.<name>/<request key>/
    source.cu               the source, if it is a text; tools show its lines
    <build key>/
        cuda_kernel.<name>  the cubin, whose access time is the last use
        manifest.json       the headers that the source includes, and what `list` shows

`list`, `clean` and `prune` treat them as builds. A hit compares the stats of the headers, CUDA's
own among them, and reads those whose stats differ.
"""

import contextlib
import glob
import os
import tempfile
import time

from _jit_loader.cache import cache_folder, check_trusted, digest_of, readonly_caches
from _jit_loader.cache.files import read_checked, write_atomically, write_checked

MANIFEST = "manifest.json"  # as in cache/store.py, whose import would take a tenth of a hit


def title_of_kernel(expression):
    """Returns the name of a kernel's builds: 'cuda_kernel.scale_float' for 'scale<float>'.

    Without an expression, it is the name of the builds of all kernels of a source.
    """
    letters = (letter if letter.isalnum() and letter.isascii() else " " for letter in expression)
    return "cuda_kernel." + ("_".join("".join(letters).split())[:80] or "all")


def find(title, key):
    """Returns (code, symbol, types) of the build that fits the headers as they are, or None."""
    for cache in [cache_folder(), *readonly_caches()]:
        request_folder = os.path.join(glob.escape(cache), title, key)
        for path in glob.glob(os.path.join(request_folder, "*", MANIFEST)):
            library = os.path.join(os.path.dirname(path), title)
            with contextlib.suppress(FileNotFoundError):  # pruning is removing it
                check_trusted(os.path.dirname(path))
                check_trusted(library)
                manifest = read_checked(path)
                if manifest is None or not _fits(manifest):
                    continue
                with open(library, "rb") as file:
                    code = file.read()
                if digest_of(code) == manifest["library"]:
                    return code, manifest["symbol"], manifest["types"]
    return None


def make_folder(title, key, source):
    """Makes the folder of a kernel's builds; returns the path of its copy of a source text.

    Raises OSError if the cache cannot be written.
    """
    request_folder = os.path.join(cache_folder(), title, key)
    os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
    os.makedirs(request_folder, mode=0o700, exist_ok=True)
    with open(
        os.path.join(request_folder, "lock"), "ab"
    ):  # pruning locks it, and recognises requests' folders by it
        pass
    path = os.path.join(request_folder, "source.cu")
    write_atomically(path, source.encode())
    return path


def publish(title, key, manifest, code):
    """Stores a kernel in its request's folder.

    Raises OSError if the cache cannot be written, or if another process has stored it before.
    """
    request_folder = os.path.join(cache_folder(), title, key)
    manifest = {**manifest, "name": title, "created": time.time(), "library": digest_of(code)}
    folder = tempfile.mkdtemp(prefix=".new-", dir=request_folder)
    write_atomically(os.path.join(folder, title), code)
    write_checked(os.path.join(folder, MANIFEST), manifest)
    headers = [manifest[name] for name in ("files", "system", "absent")]
    os.rename(folder, os.path.join(request_folder, digest_of([headers, manifest["library"]])))


def _fits(manifest):
    def is_same(path, *digests):
        from _jit_loader.cache.memo import stamp  # a kernel without headers does not need it

        found = stamp(path)
        if found is not None and list(found) == manifest["stamps"].get(path):
            return True
        from _jit_loader.key.digests import read_digest  # most hits need no digest

        return read_digest(path) in digests

    # As for every build, a system header that this machine lacks is not a change.
    return (
        all(is_same(path, digest) for path, digest in manifest["files"].items())
        and all(is_same(path, digest, None) for path, digest in manifest["system"].items())
        and not any(map(os.path.exists, manifest["absent"]))
    )
