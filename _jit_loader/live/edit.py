"""Tells whether the current files differ from an earlier build only in device code."""

import os
import re
from typing import NamedTuple

from _jit_loader.build.record import TEXTS
from _jit_loader.cache import Memo
from _jit_loader.cache.files import read_bytes, read_checked
from _jit_loader.cache.store import Build, differences, read_manifest, records_of
from _jit_loader.cuda.preprocess import NotUnderstood
from _jit_loader.key.digests import digest_of_bytes
from _jit_loader.live.host_code import host_code
from _jit_loader.this_process import libraries

LIVE = "live.json"  # of a build; self_check.py writes it
CANDIDATES = 3  # the earlier builds that are tried; each takes some ms
# CUB's headers hide from NVRTC an empty kernel, which their host code needs.
OF_CUB = re.compile(r"_ZN3cub\d+CUB_\w+6detail11EmptyKernelIvEEvv")


class NotLive(ValueError):
    """The edit needs a complete build; the text is the reason."""


class Inputs(NamedTuple):
    """What the kernels of a .cu file are compiled from.

    path: the file. texts: {path: text} of it and of the user's headers. command: nvcc's words.
    kernels: the mangled names, a set.
    """

    path: str
    texts: dict
    command: list
    kernels: set


class Source(NamedTuple):
    """A .cu file with new device code.

    inputs: with the current texts. answer: that of the self-check for the earlier build.
    host_object: the path of its object in that build.
    """

    inputs: Inputs
    answer: dict
    host_object: str


class Edit(NamedTuple):
    """An edit of device code.

    build: the earlier build, whose host code is current. sources: a Source for each .cu file with
    new device code. changed: the names of the changed files, to print.
    user_files: {relative path: digest} of all the user's files as they are now.
    """

    build: Build
    sources: list
    changed: str
    user_files: dict


def find_edit(builds, digests):
    """Returns the Edit from an earlier build to the current files.

    Builds that this process has loaded are tried first, then the newest. If the self-check of the
    newest has found that NVRTC compiles a source differently, an older build of it is not tried.

    Raises:
        NotLive: there is none; the text is the reason.
    """
    reason, found = None, builds.earlier()
    checked = next(filter(None, map(self_check_answers, found[:CANDIDATES])), {})
    refused = {os.path.basename(path): answer["reason"] for path, answer in checked.items()}
    for build in sorted(found, key=lambda build: build.library not in libraries)[:CANDIDATES]:
        try:
            return _edit(builds, build, refused, digests)
        except NotLive as error:
            reason = reason or error
    raise reason or NotLive("there is no earlier build")


def _edit(builds, build, refused, digests):
    request, memo = builds.request, Memo.read(builds.memo_path)
    if (manifest := read_manifest(build.folder)) is None:
        raise NotLive("the last build is damaged")
    memo = memo if memo and memo.library == build.library else None
    changed = set()
    for kind, path in differences(manifest, request, digests, memo):
        if kind != "changed" or path not in manifest["user files"]:
            raise NotLive(f"{_shown(path)}: {kind}")
        changed.add(path)
    records = records_of(build.folder)
    if not changed or None in records.values():
        raise NotLive("the last build is not complete")
    data = {name: read_bytes(request.roots.absolute(name)) for name in changed}
    now = {name: content.decode() for name, content in data.items()}
    digests_now = {name: digest_of_bytes(content) for name, content in data.items()}
    of_gpu = {path: record for path, record in records.items() if "nvcc" in record}
    of_device = {name for record in of_gpu.values() for name in record["user files"]}
    of_cpu = {name for path in records.keys() - of_gpu.keys() for name in records[path]["files"]}
    if others := changed & of_cpu or changed - of_device:
        raise NotLive(f"{_shown(min(others))} is code for the CPU")
    before = read_checked(os.path.join(build.folder, TEXTS)) or {}
    answers, sources = self_check_answers(build), []
    for path, record in sorted(of_gpu.items()):
        if changed.isdisjoint(record["files"]):
            continue
        if reason := refused.get(os.path.basename(record["source"])):
            raise NotLive(f"{_shown(record['source'])}: {reason}")
        answer = answers.get(record["source"], {"removed": [], "kernels": {}})
        sources.append(_source(request, path, record, answer, before, now))
    if digests.digest(build.library) != manifest["library"]:
        raise NotLive("the last build is damaged")
    user_files = {name: manifest["files"][name] for name in manifest["user files"]} | digests_now
    return Edit(build, sources, ", ".join(map(_shown, sorted(changed))), user_files)


def self_check_answers(build):
    """Returns what the self-check of a build has found: {source: its answer}; {} before its end."""
    return read_checked(os.path.join(build.folder, LIVE)) or {}


def _source(request, host_object, record, answer, before, now):
    """Returns the Source of an object; raises NotLive if its host code has changed, or may have.

    before: {name: text} of the user's files at the build. now: of those that have changed.
    """
    inputs = inputs_of(record, before, request.roots)
    path, texts, command, _ = inputs
    changed = [name for name in now if name in record["user files"]]
    now = texts | {request.roots.absolute(name): now[name] for name in changed}
    try:
        same = host_code(path, texts, command) == host_code(path, now, command)
    except NotUnderstood as error:
        raise NotLive(f"the sources are not understood: {error}") from None
    if not same:
        names = ", ".join(map(_shown, sorted(changed)))
        raise NotLive(f"{names}: changed outside of device code")
    return Source(inputs._replace(texts=now), answer, host_object)


def inputs_of(record, texts, roots):
    """Returns the Inputs of an object, as its build had them.

    texts: {name: text} of user files. Raises NotLive if the text of a file is missing.
    """
    if missing := {*record["user files"]} - texts.keys():
        raise NotLive(f"the last build has no text of {min(missing)}, or it is not UTF-8")
    names = (each["mangled"] for each in record["kernels"] if each["registers"] is not None)
    return Inputs(
        roots.absolute(record["source"]),
        {roots.absolute(name): texts[name] for name in record["user files"]},
        list(map(roots.absolute_text, record["nvcc"])),
        {name for name in names if not OF_CUB.match(name)},
    )


def _shown(path):
    return path.removeprefix("<project>/")
