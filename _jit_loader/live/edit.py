"""Tells whether the current files differ from the last build only in device code and formulas."""

import glob
import os
from typing import NamedTuple

from _jit_loader.build.plan import RECORD
from _jit_loader.build.record import TEXTS
from _jit_loader.cache import digest_of, registrations
from _jit_loader.cache.files import read_checked
from _jit_loader.cache.store import Build, differences
from _jit_loader.cuda.preprocess import NotUnderstood
from _jit_loader.key.digests import digest_of_bytes
from _jit_loader.live.host_code import host_code

LIVE = "live.json"  # of a build; self_check.py writes it


class NotLive(ValueError):
    """The edit needs a complete build; the text is the reason."""


class Edit(NamedTuple):
    """An edit of device code.

    build: the earlier build, whose host code is current. host_object: the path of its object with
    device code. record: the record of that object. source: the .cu file. command: nvcc's words.
    removed: for compile_device. texts: {path: current text} of the source and its headers. changed:
    the names of those that have changed, to print.
    outputs: the other objects, for the CPU, that include a changed formula.
    user_files: {relative path: digest} of all the user's files. keys: digests of these as they
    were at the build, and as they are now.
    """

    build: Build
    host_object: str
    record: dict
    source: str
    command: list
    removed: list
    texts: dict
    changed: str
    outputs: list
    user_files: dict
    keys: tuple


def find_edit(builds, digests):
    """Returns the Edit from the newest build to the current files.

    Raises:
        NotLive: there is none; the text is the reason.
    """
    newest = next(builds.manifests(), None)
    if newest is None:
        raise NotLive("there is no earlier build")
    return _edit(builds.request, *newest, digests)


def _edit(request, build, manifest, digests):
    if os.path.exists(os.path.join(build.folder, registrations.FILE)):
        raise NotLive("the library registers operators or classes with PyTorch")
    changed = set()
    for kind, path in differences(manifest, request, digests):
        if kind != "changed" or path not in manifest["user files"]:
            raise NotLive(f"{_shown(path)}: {kind}")
        changed.add(path)
    objects = glob.glob(f"{glob.escape(build.folder)}/*.o{RECORD}")
    records = {os.path.basename(path)[: -len(RECORD)]: read_checked(path) for path in objects}
    of_cuda = [name for name, record in records.items() if record and "nvcc" in record]
    if not changed or None in records.values() or len(of_cuda) != 1:
        raise NotLive("the last build does not have exactly one .cu file with a record")
    record = records[of_cuda[0]]
    answers = read_checked(os.path.join(build.folder, LIVE)) or {}
    answer = answers.get(record["source"], {"removed": [], "reason": None})
    if answer["reason"]:
        raise NotLive(f"{_shown(record['source'])}: {answer['reason']}")
    if others := changed - {*record["user files"]}:
        raise NotLive(f"{_shown(min(others))} is code for the CPU only")
    before = read_checked(os.path.join(build.folder, TEXTS)) or {}
    if before.keys() != {*record["user files"]}:
        raise NotLive("the last build has no text of a file, or it is not UTF-8")
    now, digests_now = dict(before), {}
    for name in changed:
        with open(request.roots.absolute(name), "rb") as file:
            data = file.read()
        now[name], digests_now[name] = data.decode(), digest_of_bytes(data)
    host_object = os.path.join(build.folder, of_cuda[0])
    source = request.roots.absolute(record["source"])
    command = list(map(request.roots.absolute_text, record["nvcc"]))
    before, now = (
        {request.roots.absolute(name): text for name, text in texts.items()}
        for texts in (before, now)
    )
    _check_host_code(source, before, now, changed, command)
    if digests.digest(build.library) != manifest["library"]:
        raise NotLive("the last build is damaged")
    files_before = {name: manifest["files"][name] for name in manifest["user files"]}
    user_files = files_before | digests_now
    return Edit(
        build,
        host_object,
        record,
        source,
        command,
        answer["removed"],
        now,
        ", ".join(map(_shown, sorted(changed))),
        sorted(
            output
            for output, other in records.items()
            if other is not record and not changed.isdisjoint(other["files"])
        ),
        user_files,
        tuple(digest_of(sorted(each.items())) for each in (files_before, user_files)),
    )


def _check_host_code(source, before, now, changed, command):
    """Raises NotLive if the changed sources have different host code now, or may have."""
    try:
        same = host_code(source, before, command) == host_code(source, now, command)
    except NotUnderstood as error:
        raise NotLive(f"the sources are not understood: {error}") from None
    if not same:
        names = ", ".join(map(_shown, sorted(changed)))
        raise NotLive(f"{names}: changed outside of device code and formulas")


def _shown(path):
    return path.removeprefix("<project>/")
