"""Flags with paths that are relative to build_directory, the working folder of PyTorch's build."""

import os
import re

# Flags that take a path, attached or as the next word.
TAKE_PATH = (
    *("-I", "-L", "-B", "-isystem", "-iquote", "-idirafter", "-include", "-imacros", "@"),
    "--include-directory=",
)
# Flags whose next word is a name, and the linker's options whose value is no file of the build.
TAKE_NAME = ("-D", "-U", "-l", "-x", "-u", "-z")
NO_FILE = ("-rpath", "-rpath-link", "-soname", "-h")


def absolute(flags, folder):
    """Returns the flags; relative paths that exist in the folder are made absolute."""
    result, before = [], ""
    for flag in flags:
        words = re.split(r"(\s+)", flag)
        for i in range(0, len(words), 2):  # the others are the spaces between
            if words[i]:
                words[i], before = _absolute_word(words[i], before, folder), words[i]
        result.append("".join(words))
    return result


def _absolute_word(word, before, folder):
    if before in TAKE_PATH:
        return _absolute_path(word, folder)
    if before in TAKE_NAME:
        return word
    if word.startswith(("-Wl,", "-Wp,")):
        parts = re.split("([,=])", word)
        for i in range(2, len(parts), 2):
            if parts[i - 2] not in NO_FILE:
                parts[i] = _absolute_value(parts[i], folder)
        return "".join(parts)
    return _absolute_value(word, folder)


def _absolute_value(word, folder):
    for option in TAKE_PATH:
        if word.startswith(option):
            return option + _absolute_path(word[len(option) :], folder)
    return word if word.startswith("-") else _absolute_path(word, folder)


def _absolute_path(path, folder):
    joined = os.path.join(folder, path)
    return joined if path and os.path.exists(joined) else path
