"""Preprocesses an edit of lines that have no macro, without g++, which takes 0.06 s.

A line without a macro, a literal or a directive that stands unchanged in the preprocessed text
is not in a comment, a condition that is false, or the arguments of a macro. So the new line takes
its place.
"""

import re

_MARKER = re.compile(r'# (\d+) "(.*)"$')
_WORD = re.compile(r"[^\W\d]\w*")
# What g++ may read in another way: directives, literals, comments, and macros that it defines.
_NOT_PLAIN = re.compile(r"""[#"'\\]|/\*|\*/|\?\?|%:|__[A-Z]|__has_|_Pragma""")


def preprocessed(texts, last):
    """Returns the preprocessed text of files, None if only g++ can tell it.

    texts: {path: text}. last: the "texts" of an earlier version, their preprocessed "text", and the
    names of all "macros".
    """
    edits, macros = {}, {*last["macros"].split()}
    if texts.keys() != last["texts"].keys():
        return None
    for path, before in last["texts"].items():
        if texts[path] != before:
            old, new = before.split("\n"), texts[path].split("\n")
            pairs = enumerate(zip(old, new), 1)
            edits[path] = {number: pair for number, pair in pairs if pair[0] != pair[1]}
            if len(old) != len(new) or 'R"' in before:
                return None
            if not all(_is_plain(*pair, macros) for pair in edits[path].values()):
                return None
    lines, replaced, number, path = [], set(), 0, None
    for line in last["text"].split("\n"):
        if marker := _MARKER.match(line):
            number, path = int(marker[1]) - 1, marker[2]
        elif number in edits.get(path, ()):
            old, new = map(_code, edits[path][number])
            if line.split() != old.split():
                return None
            replaced.add((path, number))
            line = new
        lines.append(line)
        number += 1
    return "\n".join(lines) if len(replaced) == sum(map(len, edits.values())) else None


def _code(line):
    """Returns a line without its comment."""
    return line.partition("//")[0]


def _is_plain(old, new, macros):
    """Tells whether g++ only removes comments from two lines."""
    both = f"{_code(old)} {_code(new)}"
    if (_code(new).strip() and not _code(old).strip()) or _code(new).lstrip().startswith("("):
        return False  # an empty line may be in a comment; the line before may end with a macro
    if _NOT_PLAIN.search(both) or old.rstrip().endswith("\\") or new.rstrip().endswith("\\"):
        return False
    return macros.isdisjoint(_WORD.findall(both))
