"""The reasons for a build: the differences from the last one."""

import glob
import os

from _jit_loader.cache import readonly_caches
from _jit_loader.cache.builds import manifests
from _jit_loader.cache.store import differences, fits, own_differences, read_manifest
from _jit_loader.report.errors import CompilingForbidden
from _jit_loader.report.requests import THE_LOADER, WORDS, change_texts, request_changes

MOST_REASONS = 8  # in an error


def why_built(builds, programs, digests):
    """Returns the reason for a build, such as 'kernels/add2.cu changed' or 'first build'."""
    manifest = builds.last_manifest()
    if manifest is None:
        last = _last_of_name(builds)
        if last is None:
            return "first build"
        old, new = last["request"], builds.request.description
        changed = [key for key in new if old.get(key) != new[key]] or [THE_LOADER]
        return f"{', '.join(WORDS.get(key, key) for key in changed)} changed"
    roots = builds.request.roots
    # The user's files first: comparing all of PyTorch's headers takes 30 ms.
    changes = change_texts(own_differences(manifest, roots, digests)) or change_texts(
        differences(manifest, roots, programs, digests)
    )
    if not changes:
        return "the cached library was damaged"
    return f"{changes[0]} and {len(changes) - 1} more" if len(changes) > 1 else changes[0]


def all_reasons(builds, programs, digests):
    """Returns a line for each difference from the last build; [] if a build fits."""
    roots = builds.request.roots
    if any(fits(manifest, roots, programs, digests) for _, manifest in builds.manifests()):
        return []
    last = builds.last_manifest() or _last_of_name(builds)
    if last is None:
        return ["it has never been built"]
    old, new = last["request"], builds.request.description
    files = change_texts(differences(last, roots, programs, digests))
    if old["PyTorch"] != new["PyTorch"]:  # one line for its 5,000 headers
        files = [line for line in files if not line.startswith("<packages>/torch/")]
    settings = [line for key in new for line in request_changes(key, old.get(key), new[key])]
    return [*settings, *files] or [f"{THE_LOADER} changed"]


def forbidden(builds, programs, digests):
    """Returns the error for a build that JIT_LOADER_NO_COMPILE forbids."""
    name, title = builds.request.name, builds.request.title
    reasons = all_reasons(builds, programs, digests) or ["the cached library is damaged"]
    more = len(reasons) - MOST_REASONS
    if more > 0:
        reasons[MOST_REASONS:] = [f"{more} more"]
    return CompilingForbidden(
        "\n  ".join(
            [
                f"{title} would have to be compiled, and JIT_LOADER_NO_COMPILE forbids it:",
                *reasons,
            ]
        )
        + "\nCompile it where that is allowed: load it once with the same cache and without "
        f"JIT_LOADER_NO_COMPILE; or, for an op, run `python -m jit_loader export {name} --out DIR` "
        "and name DIR in JIT_LOADER_READONLY_CACHES here"
    )


def _last_of_name(builds):
    """Returns the manifest of the newest build of the same name and variant, with any flags."""
    name, variant = builds.request.name, builds.request.description.get("variant")
    found = [manifest for _, manifest in manifests([name])] or _in_readonly_caches(name)
    found = [manifest for manifest in found if manifest["request"].get("variant") == variant]
    return max(found, key=lambda manifest: manifest["created"], default=None)


def _in_readonly_caches(name):
    """Returns the manifests of the builds of a name in JIT_LOADER_READONLY_CACHES."""
    folders = (os.path.join(glob.escape(cache), name, "*", "*") for cache in readonly_caches())
    found = (read_manifest(folder) for pattern in folders for folder in glob.glob(pattern))
    return [manifest for manifest in found if manifest is not None]
