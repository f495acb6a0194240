"""What an export says of itself: export.json, what it holds; SHA256SUMS, for sha256sum -c too."""

import hashlib
import json
import os
import time

from _jit_loader.cache import FORMAT
from _jit_loader.cache.builds import architectures
from _jit_loader.cache.store import MANIFEST, read_manifest

EXPORT = "export.json"
SUMS = "SHA256SUMS"


def write(folder):
    """Describes the builds in a folder, and returns what it has written to export.json."""
    builds = []
    for path in _files_in(folder):
        if os.path.basename(path) == MANIFEST:
            build = os.path.dirname(path)
            manifest = read_manifest(os.path.join(folder, build))
            asked = manifest["request"]
            builds.append(
                {
                    "name": manifest["name"],
                    "variant": asked.get("variant", ""),
                    "made for": target_of(asked),
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
    """The value of export.json; None where the folder is no export.

    Raises:
        ValueError: it is damaged, or another version of jit_loader wrote it.
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


def target_of(asked):
    """What a request was made for, in words that two can be compared by.

    asked: Request.description.
    """
    version, _, cuda, *_ = asked["PyTorch"]
    return {
        "PyTorch": version,
        "CUDA": cuda,
        "Python": python_of(asked["Python"]),
        "architectures": architectures(asked),
    }


def python_of(suffix):
    """'cpython-311-x86_64-linux-gnu', of what the names of its extension modules end with."""
    return suffix.removeprefix(".").removesuffix(".so")


def text_of(target):
    """'PyTorch 2.13.0 (CUDA 13.0), cpython-311-x86_64-linux-gnu, x86-64-v3, sm_90'."""
    cuda = f" (CUDA {target['CUDA']})" if target["CUDA"] else ""
    parts = [f"PyTorch {target['PyTorch']}{cuda}", target["Python"], *target["architectures"]]
    return ", ".join(parts)


def key_of(build):
    """The key of the request that one of the builds in export.json is for."""
    return os.path.basename(os.path.dirname(build["folder"]))


def damaged(folder):
    """Yields the paths, relative to an export, of the files that are not as they were exported."""
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
    """Paths of all files below a folder, relative to it, sorted."""
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
