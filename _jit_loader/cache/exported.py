"""The description of an export: export.json, a list of its builds, and SHA256SUMS.

`sha256sum -c SHA256SUMS` checks the files without Python.
"""

import hashlib
import json
import os
import time

from _jit_loader.cache import FORMAT
from _jit_loader.cache.builds import architectures
from _jit_loader.cache.store import MANIFEST, read_manifest

EXPORT = "export.json"
SUMS = "SHA256SUMS"


def write(folder, with_kernels=()):
    """Writes export.json and SHA256SUMS for the builds in a folder; returns export.json's value.

    with_kernels: the names of the ops that have a .cu file, compiled or not.
    """
    builds = []
    for path in _files_in(folder):
        if os.path.basename(path) == MANIFEST:
            build = os.path.dirname(path)
            manifest = read_manifest(os.path.join(folder, build))
            request = manifest["request"]
            builds.append(
                {
                    "name": manifest["name"],
                    "variant": request.get("variant", ""),
                    "made for": target_of(request),
                    "CUDA source": manifest["name"] in with_kernels,
                    "folder": build,
                }
            )
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    export = {"format": FORMAT, "created": created, "builds": builds}
    with open(os.path.join(folder, EXPORT), "w") as file:
        json.dump(export, file, indent=1)
        file.write("\n")
    sums = [f"{_sha256(os.path.join(folder, path))}  {path}\n" for path in _files_in(folder)]
    with open(os.path.join(folder, SUMS), "w") as file:
        file.writelines(sums)
    return export


def read(folder):
    """Returns the value of export.json, or None if the folder is not an export.

    Raises:
        ValueError: export.json is damaged, or another version of jit_loader wrote it.
    """
    path = os.path.join(folder, EXPORT)
    try:
        with open(path) as file:
            export = json.load(file)
        found, _ = export["format"], export["builds"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged: {error}; copy the export again") from None
    if found != FORMAT:
        raise ValueError(
            f"{folder} was exported by another version of jit_loader: its builds are of format "
            f"{found}, and this version reads {FORMAT}; export again"
        )
    return export


def target_of(request):
    """Returns the target of a request as a dict, for comparison with others.

    request: Request.description.
    """
    version, _, cuda, *_ = request["PyTorch"]
    return {
        "PyTorch": version,
        "CUDA": cuda,
        "Python": python_of(request["Python"]),
        "architectures": architectures(request),
    }


def python_of(suffix):
    """Returns Python's ABI from the suffix of modules, such as 'cpython-311-x86_64-linux-gnu'."""
    return suffix.removeprefix(".").removesuffix(".so")


def text_of(target):
    """Describes a target, as in 'PyTorch 2.13.0 (CUDA 13.0), cpython-311-..., x86-64-v3, sm_90'."""
    cuda = f" (CUDA {target['CUDA']})" if target["CUDA"] else ""
    parts = [f"PyTorch {target['PyTorch']}{cuda}", target["Python"], *target["architectures"]]
    return ", ".join(parts)


def key_of(build):
    """Returns the key of the request that a build in export.json is for."""
    return os.path.basename(os.path.dirname(build["folder"]))


def damaged(folder):
    """Yields the relative paths of files that were changed, added or removed since the export."""
    try:
        with open(os.path.join(folder, SUMS)) as file:
            sums = dict(line.rstrip("\n").split("  ", 1)[::-1] for line in file)
    except (OSError, ValueError):
        yield SUMS
        return
    for path in sorted({*sums, *_files_in(folder)} - {SUMS}):
        try:
            if path not in sums or _sha256(os.path.join(folder, path)) != sums[path]:
                yield path
        except OSError:
            yield path


def _files_in(folder):
    """Returns the sorted paths of all files below a folder, relative to it."""
    return sorted(
        os.path.relpath(os.path.join(parent, name), folder)
        for parent, _, names in os.walk(folder)
        for name in names
    )


def _sha256(path):
    with open(path, "rb") as file:
        hasher = hashlib.sha256()
        while block := file.read(1 << 20):
            hasher.update(block)
        return hasher.hexdigest()
