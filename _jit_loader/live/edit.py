"""Finds the build from which the current files differ only in device code."""

import glob
import itertools
from typing import NamedTuple

from _jit_loader.cache import digest_of
from _jit_loader.cache.files import read_checked
from _jit_loader.cache.shared_objects import RECORD
from _jit_loader.cache.store import Build, differences
from _jit_loader.cuda.device_edits import read_texts, skeletons
from _jit_loader.key import toolchain

CANDIDATES = 4  # the newest builds of a request that are tried


class Edit(NamedTuple):
    """An edit of device code.

    build: whose host code fits. record: of its object with device code. source: the .cu file.
    texts: {path: text} of it and its headers now. changed: their relative paths that differ.
    key: changes with the content of any of the user's files.
    """

    build: Build
    record: dict
    source: str
    texts: dict
    changed: list
    key: str


def find_edit(slot, contents):
    """Returns the Edit from a build of a slot to the current files, or None."""
    for build, manifest in itertools.islice(slot.manifests(), CANDIDATES):
        if manifest.get("registrations") is None:
            edit = _edit(slot.request, build, manifest, contents)
            if edit is not None:
                return edit
    return None


def _edit(request, build, manifest, contents):
    programs = toolchain.programs(request.with_cuda)
    changed = set()
    for kind, path in differences(manifest, request.roots, programs, contents):
        if kind != "changed" or path not in manifest["own"]:
            return None
        changed.add(path)
    objects = glob.glob(f"{glob.escape(build.folder)}/*.o{RECORD}")
    records = [read_checked(path) for path in objects]
    with_code = [record for record in records if record and "skeletons" in record]
    if not changed or None in records or len(with_code) != 1:
        return None
    record = with_code[0]
    others = [other for other in records if other is not record]
    paths = {path: request.roots.absolute(path) for path in record["own"]}
    texts = read_texts(paths.values())
    if len(texts) != len(paths):
        return None
    digests = {name: texts[path][1] for name, path in paths.items()}
    differ = {name for name, digest in digests.items() if digest != record["files"][name]}
    if not differ >= changed or any(name in other["files"] for other in others for name in differ):
        return None  # the CPU's code or the binding has changed too
    current = {name: texts[path][0] for name, path in paths.items()}
    if not _have_same_host_code(record, current, differ):
        return None
    if contents.digest(build.library) != manifest["library"]:
        return None
    own = {name: manifest["files"][name] for name in manifest["own"]}
    return Edit(
        build,
        record,
        request.roots.absolute(record["source"]),
        {path: text for path, (text, _) in texts.items()},
        sorted(differ),
        digest_of(sorted({**own, **digests}.items())),
    )


def _have_same_host_code(record, texts, names):
    """Tells whether sources that differ from a record's have the same code for the host."""
    found = skeletons(texts, record["nvcc"], names)
    return all(name in found and found[name] == record["skeletons"].get(name) for name in names)
