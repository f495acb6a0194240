"""Describes the differences between two builds in words."""

# The reason to build if two requests agree and their keys differ: another version of the loader
# describes the same request in other rows.
THE_LOADER = "the loader"

# Texts for the rows of a request's description that have an internal name.
WORDS = {"form": "the kind of build"}


def change_texts(changes):
    """Returns texts of changed files: 'x.cu changed', 'the compiler /usr/bin/c++ changed', ...

    changes: [(kind, path)]; the kinds "new", "missing" and "compiler" have their own texts.
    """
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
    """Returns texts of the differences between two values of a row of a request's description.

    For example 'C++ flags: -DMORE is new' or 'environment variables: CC was gcc, is clang'.
    """
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
    return [f"{key}: {change}" for change in changes or ["in a different order"]]


def _was_and_is(old, new):
    return f"was {_text(old)}, is {_text(new)}"


def _text(value):
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "not set" if value is None else str(value)
