"""Lists the builds in the cache.

The key is made of the first letters of a build's two folders. The age is that of the build. CUDA is
the version that it was compiled for, or "no". --json has more: also the time of the last use.
"""

import json
import os
import time

from _jit_loader.build.precompiled import precompiled_headers
from _jit_loader.cache import cache_folder
from _jit_loader.cache.pruning import last_used, manifests, size_of
from _jit_loader.report.requests import title_of
from _jit_loader.report.text import count, format_age, format_size, print_table


def add_arguments(parser):
    parser.add_argument("--json", action="store_true", help="print all details as JSON")


def run(options):
    builds = [_described(folder, manifest) for folder, manifest in manifests()]
    builds.sort(key=lambda build: (build["name"], build["variant"], -build["created"]))
    if options.json:
        print(json.dumps(builds, indent=1))
        return 0
    if builds:
        print_table(map(_row, builds), ["name", "key", "size", "age", "torch", "CUDA"])
    for folder in precompiled_headers():
        print(f"precompiled headers: {format_size(size_of(folder))}, in {folder}")
    size = format_size(size_of(cache_folder()))
    print(f"{count(len(builds), 'build')}, {size} on disk, in {cache_folder()}")
    return 0


def _described(folder, manifest):
    """Returns the properties of a build, as values that JSON can hold."""
    request = manifest["request"]
    version, _, cuda, *_ = request["PyTorch"]
    return {
        "name": manifest["name"],
        "variant": request.get("variant", ""),
        "key": os.path.join(*folder.split(os.sep)[-2:]),
        "folder": folder,
        "size": size_of(folder),
        "created": manifest["created"],
        "last used": last_used(folder),
        "torch": version,
        "cuda": cuda if request["with CUDA"] else None,
    }


def _row(build):
    return [
        title_of(build["name"], build["variant"]),
        "/".join(part[:8] for part in build["key"].split("/")),
        format_size(build["size"]),
        format_age(time.time() - build["created"]),
        build["torch"],
        build["cuda"] or "no",
    ]
