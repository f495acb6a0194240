"""Why something is built: what differs from the last builds of it."""

import os

from _jit_loader.store import differences, read_manifest


def why_built(slot, programs, contents):
    """'kernels/add2.cu changed', 'first build', 'C++ flags changed', ..."""
    manifest = slot.last_manifest()
    if manifest is None:
        return _why_new_slot(slot)
    changes = list(differences(manifest, slot.request.roots, programs, contents))
    if not changes:
        return "the cached library was damaged"
    kind, path = changes[0]
    name = path.removeprefix("<project>/")
    texts = {"new": f"{name} appeared", "compiler": f"the compiler {name} changed"}
    text = texts.get(kind, f"{name} {kind}")
    return f"{text} and {len(changes) - 1} more" if len(changes) > 1 else text


def _why_new_slot(slot):
    """What is asked for differently than in the last build of that name."""
    folders = [
        entry.path
        for other in os.scandir(os.path.dirname(slot.folder))
        if other.is_dir()
        for entry in os.scandir(other.path)
        if entry.is_dir()
    ]
    manifests = filter(None, map(read_manifest, folders))
    last = max(manifests, key=lambda manifest: manifest["created"], default=None)
    if last is None:
        return "first build"
    old, new = last["request"], slot.request.description
    return f"{', '.join(key for key in new if old.get(key) != new[key])} changed"
