"""Why something is built: what differs from the last build of it."""

from _jit_loader.builds import manifests
from _jit_loader.store import differences, fits, own_differences

# Of what a build is known by: another version of it may have another row, with nothing in it.
THE_LOADER = "the loader"
# What a request's description calls by a word of ours.
WORDS = {"form": "the kind of build"}


def why_built(slot, programs, contents):
    """'kernels/add2.cu changed', 'first build', 'C++ flags changed', ..."""
    manifest = slot.last_manifest()
    if manifest is None:
        last = _last_of_name(slot)
        if last is None:
            return "first build"
        old, new = last["request"], slot.request.description
        changed = [key for key in new if old.get(key) != new[key]] or [THE_LOADER]
        return f"{', '.join(WORDS.get(key, key) for key in changed)} changed"
    roots = slot.request.roots
    # To look at all of PyTorch's headers as well would take 30 ms.
    changes = change_texts(own_differences(manifest, roots, contents)) or change_texts(
        differences(manifest, roots, programs, contents)
    )
    if not changes:
        return "the cached library was damaged"
    return f"{changes[0]} and {len(changes) - 1} more" if len(changes) > 1 else changes[0]


def all_reasons(slot, programs, contents):
    """Every difference from the last build, a line each; [] where a build fits."""
    roots = slot.request.roots
    if any(fits(manifest, roots, programs, contents) for _, manifest in slot.manifests()):
        return []
    last = slot.last_manifest() or _last_of_name(slot)
    if last is None:
        return ["it has never been built"]
    old, new = last["request"], slot.request.description
    files = change_texts(differences(last, roots, programs, contents))
    if old["PyTorch"] != new["PyTorch"]:  # which says it for its 5,000 headers
        files = [line for line in files if not line.startswith("<packages>/torch/")]
    asked = [line for key in new for line in request_changes(key, old.get(key), new[key])]
    return [*asked, *files] or [f"{THE_LOADER} changed"]


def change_texts(changes):
    """'kernels/add2.cu changed', 'the compiler /usr/bin/c++ changed', ..."""
    texts = {
        "new": "{} appeared",
        "missing": "{} is missing",
        "compiler": "the compiler {} changed",
    }
    return [
        texts.get(kind, f"{{}} {kind}").format(path.removeprefix("<project>/"))
        for kind, path in changes
    ]


def request_changes(key, old, new):
    """'C++ flags: -DMORE is new', 'environment variables: CC was gcc, is clang', ..."""
    if old == new:
        return []
    key = WORDS.get(key, key)
    if isinstance(old, dict) and isinstance(new, dict):
        pairs = [(name, old.get(name), new.get(name)) for name in dict.fromkeys([*old, *new])]
        return [
            f"{key}: {name} {_was_and_is(before, now)}"
            for name, before, now in pairs
            if before != now
        ]
    is_list = isinstance(old, list) and isinstance(new, list)
    if not is_list or key == "PyTorch":
        return [f"{key} {_was_and_is(old, new)}"]
    changes = [f"{item} is new" for item in new if item not in old]
    changes += [f"{item} is gone" for item in old if item not in new]
    return [f"{key}: {change}" for change in changes or ["in another order"]]


def _was_and_is(old, new):
    return f"was {_text(old)}, is {_text(new)}"


def _text(value):
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "not set" if value is None else str(value)


def _last_of_name(slot):
    """The manifest of the newest build of that name and variant, whatever else was asked for."""
    variant = slot.request.description.get("variant")
    found = (
        manifest
        for _, manifest in manifests([slot.request.name])
        if manifest["request"].get("variant") == variant
    )
    return max(found, key=lambda manifest: manifest["created"], default=None)
