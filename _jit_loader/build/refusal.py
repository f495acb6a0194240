"""Explains why no export in JIT_LOADER_READONLY_CACHES has a usable build for a request."""

import os

from _jit_loader.cache import exported, readonly_caches
from _jit_loader.cache.store import differences, read_manifest
from _jit_loader.key.contents import Contents
from _jit_loader.report.reasons import change_texts, request_changes
from _jit_loader.report.variants import title_of


def explain_missing_tool(error, requests):
    """Returns the error with lines that say, for each export, why none of its builds is usable.

    requests: none of them has a usable build.
    """
    folders = [os.path.dirname(folder) for folder in readonly_caches()]
    lines = [line for folder in folders for line in _why_not(folder, requests)]
    return type(error)("\n".join([str(error), *lines]))


def _why_not(folder, requests):
    if not os.path.isdir(folder):
        return [f"{folder}, which JIT_LOADER_READONLY_CACHES names, does not exist"]
    try:
        export = exported.read(folder)
    except ValueError as error:
        return [str(error)]
    if export is None:
        return []  # an ordinary cache has no description
    request = requests[0]
    builds = [build for build in export["builds"] if _title(build) == request.title]
    if not builds:
        titles = ", ".join(sorted(set(map(_title, export["builds"]))))
        return [f"the export {folder} has {titles}, but not {request.title}"]
    keys = {request.key for request in requests}
    matching = [build for build in builds if exported.key_of(build) in keys]
    if matching:
        return _changes(folder, matching, request)
    return _other_targets(folder, builds, request)


def _changes(folder, builds, request):
    """Returns lines with the damaged files or, without any, the changes since the export.

    builds: those that have the key of the request.
    """
    inside = tuple(os.path.join(build["folder"], "") for build in builds)
    damaged = exported.damaged(folder)
    bad = [path for path in damaged if path == exported.SUMS or path.startswith(inside)]
    if bad:
        return [
            f"the export {folder} is damaged: {', '.join(bad)} changed or went missing after "
            f"the export; copy it again (python -m jit_loader export --verify {folder} checks it)"
        ]
    manifests = [read_manifest(os.path.join(folder, build["folder"])) for build in builds]
    changes = [
        text
        for manifest in manifests
        for text in change_texts(differences(manifest, request.roots, {}, Contents()))
    ]
    return [f"since {folder} was exported: {text}" for text in dict.fromkeys(changes)]


def _other_targets(folder, builds, request):
    """Returns lines with the builds' targets and with this machine's."""
    here = exported.target_of(request.description)
    targets = list(dict.fromkeys(exported.text_of(build["made for"]) for build in builds))
    lines = [f"the export {folder} has {request.title} for", *(f"  {text}" for text in targets)]
    lines.append(f"this machine has\n  {exported.text_of(here)}")
    for build in builds:
        if build["made for"] == here:
            manifest = read_manifest(os.path.join(folder, build["folder"])) or {"request": {}}
            old, new = manifest["request"], request.description
            lines += [line for key in new for line in request_changes(key, old.get(key), new[key])]
    return lines


def _title(build):
    return title_of(build["name"], build["variant"])
