"""Finds the build from which the current files differ only in device code and in formulas."""

import glob
import itertools
import math
import os
from typing import NamedTuple

from _jit_loader.build.objects import RECORD
from _jit_loader.cache import digest_of, registrations
from _jit_loader.cache.files import read_checked
from _jit_loader.cache.store import Build, differences
from _jit_loader.cuda.device_edits import read_texts, skeletons
from _jit_loader.key import toolchain

CANDIDATES = 4  # the newest builds of a request that are tried


class NotLive(ValueError):
    """The edit needs a complete build; the text is the reason."""


class Edit(NamedTuple):
    """An edit of device code.

    build: the earlier build, whose host code is current. object: the name of its object with
    device code. record: the record of that object. source: the .cu file.
    texts: {path: current text} of the source and its headers. changed: the names of those that
    have changed, to print.
    outputs: the other objects, for the CPU, that include a changed formula.
    own: {relative path: digest} of all the user's files. key: a digest of these.
    """

    build: Build
    object: str
    record: dict
    source: str
    texts: dict
    changed: str
    outputs: list
    own: dict
    key: str

    @property
    def host_object(self):
        """The path of the object that has the host code."""
        return os.path.join(self.build.folder, self.object)


def find_edit(builds, digests):
    """Returns the Edit from one of the builds to the current files.

    Raises:
        NotLive: there is none; the reason is that of the newest build.
    """
    reason = None
    for build, manifest in itertools.islice(builds.manifests(), CANDIDATES):
        try:
            return _edit(builds.request, build, manifest, digests)
        except NotLive as error:
            reason = reason or error
    raise reason or NotLive("there is no earlier build")


def _edit(request, build, manifest, digests):
    if os.path.exists(os.path.join(build.folder, registrations.FILE)):
        raise NotLive("the library registers operators or classes with PyTorch")
    programs = toolchain.programs(request.with_cuda)
    changed = set()
    for kind, path in differences(manifest, request.roots, programs, digests):
        if kind != "changed" or path not in manifest["own"]:
            raise NotLive(f"{_shown(path)}: {kind}")
        changed.add(path)
    objects = glob.glob(f"{glob.escape(build.folder)}/*.o{RECORD}")
    records = {os.path.basename(path)[: -len(RECORD)]: read_checked(path) for path in objects}
    with_code = [name for name, record in records.items() if record and "skeletons" in record]
    if not changed or None in records.values() or len(with_code) != 1:
        raise NotLive("the last build does not have exactly one .cu file with a record")
    record = records[with_code[0]]
    paths = {path: request.roots.absolute(path) for path in record["own"]}
    texts = read_texts(paths.values())
    if len(texts) != len(paths):
        raise NotLive("a file is missing, or not UTF-8")
    now = {name: texts[path][1] for name, path in paths.items()}
    differ = {name for name, digest in now.items() if digest != record["files"][name]}
    if others := changed - differ:
        raise NotLive(f"{_shown(min(others))} is code for the CPU only")
    current = {name: texts[path][0] for name, path in paths.items()}
    _check_host_code(record, current, differ)
    if digests.digest(build.library) != manifest["library"]:
        raise NotLive("the last build is damaged")
    own = {name: manifest["files"][name] for name in manifest["own"]} | now
    return Edit(
        build,
        with_code[0],
        record,
        request.roots.absolute(record["source"]),
        {path: text for path, (text, _) in texts.items()},
        ", ".join(map(_shown, sorted(differ))),
        _outputs(records, record, differ),
        own,
        digest_of(sorted(own.items())),
    )


def _check_host_code(record, texts, names):
    """Raises NotLive if the changed sources, named by `names`, have different host code now."""
    found = skeletons(texts, record["nvcc"], record.get("host_words"), names)
    for name in sorted(names):
        if name not in found or name not in record["skeletons"]:
            raise NotLive("the lexer does not understand the sources")
        if found[name] != record["skeletons"][name]:
            raise NotLive(f"{_shown(name)}: changed outside of device code and formulas")


def _outputs(records, record, differ):
    """Returns the other objects that include changed files, and so have to be compiled again.

    Raises NotLive if one of them took longer than nvcc: a live edit would save no time.
    """
    outputs = sorted(
        output
        for output, other in records.items()
        if other is not record and not differ.isdisjoint(other["files"])
    )
    limit = record["seconds"] or math.inf  # 0: ninja had not logged it yet
    if slow := [output for output in outputs if records[output]["seconds"] > limit]:
        raise NotLive(f"{slow[0]}, for the CPU, takes longer than nvcc")
    return outputs


def _shown(path):
    return path.removeprefix("<project>/")
