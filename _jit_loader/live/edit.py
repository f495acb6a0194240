"""Tells whether the current files differ from an earlier build only in device code."""

import os
import re
from typing import NamedTuple

from _jit_loader.build.record import TEXTS
from _jit_loader.cache import Memo
from _jit_loader.cache.files import read_bytes, read_checked
from _jit_loader.cache.store import Build, differences, read_manifest, records_of
from _jit_loader.cuda.preprocess import ORDER, NotUnderstood
from _jit_loader.key.digests import digest_of_bytes
from _jit_loader.live.host_code import host_code
from _jit_loader.this_process import last, libraries

LIVE = "live.json"  # of a build; self_check.py writes it
CHECKED = 3  # builds of which the newest may not be checked yet
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

    inputs: with the current texts. before: the texts in the earlier build. changed: the names of
    its changed files, to print. answer: that of the self-check for the earlier build. host_object:
    the path of its object in that build.
    """

    inputs: Inputs
    before: dict
    changed: str
    answer: dict
    host_object: str

    def check_host_code(self):
        """Raises NotLive if the files differ in more than device code, or may."""
        path, texts, command, _ = self.inputs
        try:
            same = host_code(path, self.before, command) == host_code(path, texts, command)
        except NotUnderstood as error:
            raise NotLive(f"the sources are not understood: {error}") from None
        if not same:
            raise NotLive(f"{self.changed}: changed outside of device code")


class Edit(NamedTuple):
    """An edit of device code.

    build: the earlier build, with whose host code it runs. sources: a Source for each .cu file with
    new device code. changed: the names of the changed files, to print.
    user_files: {relative path: digest} of all the user's files as they are now.
    """

    build: Build
    sources: list
    changed: str
    user_files: dict


def find_edit(builds, digests):
    """Returns the Edit from an earlier build to the current files; compile_edit checks host code.

    The build is the last one that this process has loaded, or else the newest. If the self-check of
    the newest has found that NVRTC compiles a source differently, an older build of it is not used.

    Raises:
        NotLive: there is none; the text is the reason.
    """
    if not (found := builds.earlier()):
        raise NotLive("there is no earlier build")
    checked = next(filter(None, map(self_check_answers, found[:CHECKED])), {})
    refused = {os.path.basename(path): answer["reason"] for path, answer in checked.items()}
    loaded = getattr(last.get(builds.request.title), "path", None)
    build = min(found, key=lambda b: [b.library not in libraries, b.library != loaded])
    memo = Memo.read(builds.memo_path)
    memo = memo if memo and memo.library == build.library else None
    return _edit(builds.request, build, refused, digests, memo)


def _edit(request, build, refused, digests, memo):
    if (manifest := read_manifest(build.folder)) is None:
        raise NotLive("the earlier build is damaged")
    changed = set()
    for kind, path in differences(manifest, request, digests, memo):
        if kind != "changed" or path not in manifest["user files"]:
            raise NotLive(f"{_shown(path)}: {kind}")
        changed.add(path)
    records = records_of(build.folder)
    if not changed or None in records.values():
        raise NotLive("the earlier build is not complete")
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
    affected = [item for item in of_gpu.items() if not changed.isdisjoint(item[1]["files"])]
    for path, record in sorted(affected):
        if reason := refused.get(os.path.basename(record["source"])):
            raise NotLive(f"{_shown(record['source'])}: {reason}")
        answer = answers.get(record["source"], {"removed": [], "kernels": {}})
        sources.append(_source(request, path, record, answer, before, now))
    if digests.digest(build.library) != manifest["library"]:
        raise NotLive("the earlier build is damaged")
    user_files = {name: manifest["files"][name] for name in manifest["user files"]} | digests_now
    return Edit(build, sources, ", ".join(map(_shown, sorted(changed))), user_files)


def self_check_answers(build):
    """Returns what the self-check of a build has found: {source: its answer}; {} before its end."""
    return read_checked(os.path.join(build.folder, LIVE)) or {}


def _source(request, host_object, record, answer, before, now):
    """Returns the Source of an object. If it has other #include lines, host code is compared now.

    before: {name: text} of the user's files at the build. now: of those that have changed.
    """
    inputs, absolute = inputs_of(record, before, request.roots), request.roots.absolute
    names = sorted(now.keys() & {*record["user files"]})
    changed = {absolute(name): now[name] for name in names}
    texts, shown = inputs.texts | changed, ", ".join(map(_shown, names))
    source = Source(inputs._replace(texts=texts), inputs.texts, shown, answer, host_object)
    if any(ORDER.findall(changed[path]) != ORDER.findall(inputs.texts[path]) for path in changed):
        source.check_host_code()  # g++ reads the headers again, for each pass in seconds
    return source


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
