"""The published builds of the cache, and what their manifests say of them."""

import os
import re

from _jit_loader.cache.pruning import build_folders, last_used, size_of
from _jit_loader.cache.store import read_manifest
from _jit_loader.report.variants import parse, variant_of


def manifests(names=None):
    """Yields (folder, manifest) of the published builds, of these names or of all."""
    for folder in build_folders(names):
        manifest = read_manifest(folder)
        # A failed build has none; one from elsewhere would lie in the wrong place.
        if manifest is not None and manifest["name"] == _name_of(folder):
            yield folder, manifest


def newest(title):
    """(folder, manifest) of the newest build of an extension, or of a variant; None without one."""
    name, defines = parse(title)
    found = [
        build
        for build in manifests([name])
        if build[1]["request"].get("variant", "") == variant_of(defines)
    ]
    return max(found, key=lambda build: build[1]["created"], default=None)


def describe(folder, manifest):
    """What a person asks about a build, as values that JSON can hold."""
    asked = manifest["request"]
    version, _, cuda, *_ = asked["PyTorch"]
    return {
        "name": manifest["name"],
        "variant": asked.get("variant", ""),
        "key": os.path.join(os.path.basename(os.path.dirname(folder)), os.path.basename(folder)),
        "folder": folder,
        "size": size_of(folder),
        "created": manifest["created"],
        "last used": last_used(folder),
        "torch": version,
        "cuda": cuda if asked["with CUDA"] else None,
        "arch": architectures(asked),
    }


def _name_of(folder):
    return os.path.basename(os.path.dirname(os.path.dirname(folder)))


def architectures(asked):
    """['x86-64-v4', 'sm_90']: what the code was compiled for."""
    cpu = [flag[len("-march=") :] for flag in asked["C++ flags"] if flag.startswith("-march=")]
    flags = " ".join([*asked["GPU architectures"], *asked["nvcc flags"]])
    named = asked["environment variables"].get("TORCH_CUDA_ARCH_LIST", "").replace(";", " ")
    gpu = re.findall(r"code=\[?(sm_\w+)", flags) or named.split()
    return [*(cpu[-1:] or [asked["machine"]]), *(gpu if asked["with CUDA"] else [])]
