"""The reasons for a build: the differences from the last one."""

from _jit_loader.cache.builds import manifests
from _jit_loader.cache.store import differences, fits, own_differences
from _jit_loader.report.reasons import THE_LOADER, WORDS, change_texts, request_changes


def why_built(slot, programs, contents):
    """Returns 'kernels/add2.cu changed', 'first build', 'C++ flags changed', ..."""
    manifest = slot.last_manifest()
    if manifest is None:
        last = _last_of_name(slot)
        if last is None:
            return "first build"
        old, new = last["request"], slot.request.description
        changed = [key for key in new if old.get(key) != new[key]] or [THE_LOADER]
        return f"{', '.join(WORDS.get(key, key) for key in changed)} changed"
    roots = slot.request.roots
    # The user's files first: comparing all of PyTorch's headers takes 30 ms.
    changes = change_texts(own_differences(manifest, roots, contents)) or change_texts(
        differences(manifest, roots, programs, contents)
    )
    if not changes:
        return "the cached library was damaged"
    return f"{changes[0]} and {len(changes) - 1} more" if len(changes) > 1 else changes[0]


def all_reasons(slot, programs, contents):
    """Returns a line for each difference from the last build; [] if a build fits."""
    roots = slot.request.roots
    if any(fits(manifest, roots, programs, contents) for _, manifest in slot.manifests()):
        return []
    last = slot.last_manifest() or _last_of_name(slot)
    if last is None:
        return ["it has never been built"]
    old, new = last["request"], slot.request.description
    files = change_texts(differences(last, roots, programs, contents))
    if old["PyTorch"] != new["PyTorch"]:  # one line for its 5,000 headers
        files = [line for line in files if not line.startswith("<packages>/torch/")]
    asked = [line for key in new for line in request_changes(key, old.get(key), new[key])]
    return [*asked, *files] or [f"{THE_LOADER} changed"]


def _last_of_name(slot):
    """Returns the manifest of the newest build of the same name and variant, with any flags."""
    variant = slot.request.description.get("variant")
    found = (
        manifest
        for _, manifest in manifests([slot.request.name])
        if manifest["request"].get("variant") == variant
    )
    return max(found, key=lambda manifest: manifest["created"], default=None)
