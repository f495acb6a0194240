"""Why none of the exports that JIT_LOADER_READONLY_CACHES names has what is asked for."""

import os

from _jit_loader.cache import exported as description
from _jit_loader.cache import readonly_caches
from _jit_loader.cache.store import differences, read_manifest
from _jit_loader.key.contents import Contents
from _jit_loader.report.reasons import change_texts, request_changes
from _jit_loader.report.variants import title_of


def explain_missing_tool(error, requests):
    """Returns the error with a line for each configured export: why it has no build to load.

    requests: those that were looked for and not found.
    """
    folders = [os.path.dirname(folder) for folder in readonly_caches()]
    lines = [line for folder in folders for line in _why_not(folder, requests)]
    return type(error)("\n".join([str(error), *lines]))


def _why_not(folder, requests):
    if not os.path.isdir(folder):
        return [f"{folder}, which JIT_LOADER_READONLY_CACHES names, does not exist"]
    try:
        export = description.read(folder)
    except ValueError as error:
        return [str(error)]
    if export is None:
        return []  # it is a cache, of which nobody says what it is for
    request = requests[0]
    builds = [build for build in export["builds"] if _title(build) == request.title]
    if not builds:
        titles = ", ".join(sorted(set(map(_title, export["builds"]))))
        return [f"the export {folder} holds {titles}, and no {request.title}"]
    keys = {request.key for request in requests}
    asked_for = [build for build in builds if description.key_of(build) in keys]
    if asked_for:
        return _misfits(folder, asked_for, request)
    return _other_targets(folder, builds, request)


def _misfits(folder, builds, request):
    """What is wrong with builds of what is asked for."""
    inside = tuple(os.path.join(build["folder"], "") for build in builds)
    damaged = description.damaged(folder)
    bad = [path for path in damaged if path == description.SUMS or path.startswith(inside)]
    if bad:
        return [
            f"the export {folder} is damaged: {', '.join(bad)} is not as it was exported; copy it "
            f"again (python -m jit_loader export --verify {folder} checks it)"
        ]
    manifests = [read_manifest(os.path.join(folder, build["folder"])) for build in builds]
    changes = [
        text
        for manifest in manifests
        for text in change_texts(differences(manifest, request.roots, {}, Contents()))
    ]
    return [f"since {folder} was exported: {text}" for text in dict.fromkeys(changes)]


def _other_targets(folder, builds, request):
    """What the builds were made for, and what is here."""
    here = description.target_of(request.description)
    targets = list(dict.fromkeys(description.text_of(build["made for"]) for build in builds))
    lines = [f"the export {folder} has {request.title} for", *(f"  {text}" for text in targets)]
    lines.append(f"here is\n  {description.text_of(here)}")
    for build in builds:
        if build["made for"] == here:
            manifest = read_manifest(os.path.join(folder, build["folder"])) or {"request": {}}
            old, new = manifest["request"], request.description
            lines += [line for key in new for line in request_changes(key, old.get(key), new[key])]
    return lines


def _title(build):
    return title_of(build["name"], build["variant"])
