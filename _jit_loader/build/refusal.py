"""Explains why no cache in JIT_LOADER_READONLY_CACHES has a usable build for a request."""

import glob
import os

from _jit_loader.cache import FORMAT, readonly_caches
from _jit_loader.cache.builds import architectures
from _jit_loader.cache.store import differences, read_manifest
from _jit_loader.key.digests import Digests
from _jit_loader.report.requests import change_texts, request_changes


def explain_missing_tool(error, requests):
    """Returns the error with lines that say, for each cache, why none of its builds is usable.

    requests: none of them has a usable build.
    """
    lines = [line for cache in readonly_caches() for line in _why_not(cache, requests)]
    return type(error)("\n".join([str(error), *lines]))


def _why_not(cache, requests):
    folder, request = os.path.dirname(cache), requests[0]
    if not os.path.isdir(cache):
        return [f"{folder}, which JIT_LOADER_READONLY_CACHES names, has no builds ({FORMAT})"]
    builds = glob.glob(os.path.join(glob.escape(cache), request.name, "*", "*", ""))
    manifests = {path: read_manifest(path) for path in sorted(builds)}
    damaged = [path for path, manifest in manifests.items() if manifest is None]
    if damaged:
        return [f"{path} is damaged; copy {folder} again" for path in damaged]
    variant = request.description.get("variant")
    manifests = {p: m for p, m in manifests.items() if m["request"].get("variant") == variant}
    if not manifests:
        return [f"{folder} has no build of {request.title}"]
    keys = {request.key for request in requests}
    matching = {p: m for p, m in manifests.items() if p.split(os.sep)[-3] in keys}
    if not matching:
        return _other_targets(folder, manifests.values(), request)
    digests = Digests()
    changes = [
        text
        for path, manifest in matching.items()
        for text in change_texts(differences(manifest, request.roots, {}, digests))
        or [f"{path}{request.name}.so is damaged; copy {folder} again"]
    ]
    return [f"no build in {folder} fits: {text}" for text in dict.fromkeys(changes)]


def _other_targets(folder, manifests, request):
    """Returns lines with the builds' targets and with this machine's."""
    here = _target(request.description)
    targets = dict.fromkeys(_target(manifest["request"]) for manifest in manifests)
    lines = [f"{folder} has {request.title} for", *(f"  {target}" for target in targets)]
    lines.append(f"this machine has\n  {here}")
    for manifest in manifests:
        old, new = manifest["request"], request.description
        if _target(old) == here:
            lines += [line for key in new for line in request_changes(key, old.get(key), new[key])]
    return list(dict.fromkeys(lines))


def _target(request):
    """Describes the target of a request's description: the versions and the architectures."""
    version, _, cuda, *_ = request["PyTorch"]
    pytorch = f"PyTorch {version} (CUDA {cuda})" if cuda else f"PyTorch {version}"
    python = request["Python"].removeprefix(".").removesuffix(".so")
    return ", ".join([pytorch, python, *architectures(request)])
