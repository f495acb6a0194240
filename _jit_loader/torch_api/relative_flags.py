"""Flags with paths that are relative to build_directory, the working folder of PyTorch's build."""

import os
import re

# Flags that a path follows, with or without a space, and files that a linker takes.
RELATIVE = re.compile(
    r"(?<!\S)(?P<flag>-(?:I|L|isystem|iquote|idirafter|include|imacros)\s*)"
    r"(?P<path>[^\s/'\"`$-]\S*)"
    r"|(?<!\S)(?P<file>[^\s/'\"`$-]\S*\.(?:o|a|so(?:\.\d+)*))(?!\S)"
)


def absolute(flag, folder):
    """Returns a flag with the relative paths made absolute."""
    return RELATIVE.sub(
        lambda match: (match["flag"] or "") + os.path.join(folder, match["path"] or match["file"]),
        flag,
    )
