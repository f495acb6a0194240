"""Describes the published builds of the cache by their manifests."""

import glob
import os
import re

from _jit_loader.cache.files import read_checked
from _jit_loader.cache.pruning import build_folders, last_used, size_of
from _jit_loader.cache.store import read_manifest
from _jit_loader.report.requests import parse, variant_of


def manifests(names=None):
    """Yields (folder, manifest) of the published builds of some extensions, by default of all."""
    for folder in build_folders(names):
        manifest = read_manifest(folder)
        # A failed build has no manifest. A folder that was copied here may have another name.
        if manifest is not None and manifest["name"] == _name_of(folder):
            yield folder, manifest


def object_records(folder):
    """Returns the records of the objects of a build."""
    records = map(read_checked, sorted(glob.glob(f"{glob.escape(folder)}/*.o.json")))
    return [record for record in records if record is not None]


def kernels_of(records):
    """Returns the figures of ptxas that records of objects have, with the "source" of each."""
    return [
        {"source": record["source"].removeprefix("<project>/"), **kernel}
        for record in records
        for kernel in record.get("kernels", ())
    ]


def newest(title):
    """Returns (folder, manifest) of the newest build of an extension or a variant, or None."""
    name, defines = parse(title)
    found = [
        build
        for build in manifests([name])
        if build[1]["request"].get("variant", "") == variant_of(defines)
    ]
    return max(found, key=lambda build: build[1]["created"], default=None)


def describe(folder, manifest):
    """Returns the properties of a build that `list` shows, as values that JSON can hold."""
    request = manifest["request"]
    version, _, cuda, *_ = request["PyTorch"]
    return {
        "name": manifest["name"],
        "variant": request.get("variant", ""),
        "key": os.path.join(os.path.basename(os.path.dirname(folder)), os.path.basename(folder)),
        "folder": folder,
        "size": size_of(folder),
        "created": manifest["created"],
        "last used": last_used(folder),
        "torch": version,
        "cuda": cuda if request["with CUDA"] else None,
        "arch": architectures(request),
    }


def _name_of(folder):
    return os.path.basename(os.path.dirname(os.path.dirname(folder)))


def architectures(request):
    """Returns the architectures that a request compiles for, for example x86-64-v4 and sm_90."""
    cpu = [flag[len("-march=") :] for flag in request["C++ flags"] if flag.startswith("-march=")]
    flags = " ".join([*request["GPU architectures"], *request["nvcc flags"]])
    named = request["environment variables"].get("TORCH_CUDA_ARCH_LIST", "").replace(";", " ")
    gpu = re.findall(r"code=\[?(sm_\w+)", flags) or named.split()
    return [*(cpu[-1:] or [request["machine"]]), *(gpu if request["with CUDA"] else [])]
