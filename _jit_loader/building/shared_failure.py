"""The error of a build, for the processes that waited for it: none of them compiles it again."""

import contextlib
import itertools
import os
import re
import time

from _jit_loader.building.errors import LOAD_ERRORS, CompileError
from _jit_loader.cache import read_checked, write_checked
from _jit_loader.pruning import FAILED

FILE = "failure.json"  # in the folder of a build that failed
MOST_FILES = 10_000  # of a folder: a source may lie in a home folder
INCLUDED = re.compile(r"|\.(?:[CHchsS]|cc|hh|[cht]pp|[cht]xx|[ch]\+\+|cuh?|hip|in[cl]|ipp|tcc|def)")


def write_failure(folder, error, sources, started):
    """sources: {relative path: digest} of what was read before any compiler started, at started.

    That is all that is known of what it was made of: for what did not compile, compilers do not say
    which headers they read.
    """
    failure = {
        "message": str(error),
        "is_load_error": type(error) is not CompileError,
        "time": time.time(),
        "sources": sources,
        "started": started,
        "environment": _environment(),
    }
    write_checked(os.path.join(folder, FILE), failure)


def read_failure(slot):
    return read_checked(os.path.join(slot.folder, FAILED, FILE))


def raise_shared_failure(slot, before):
    """Raises the error of a build that another has tried meanwhile, if it was of these files.

    before: what read_failure returned before that.
    """
    failure = read_failure(slot)
    if failure is None or failure == before:
        return
    request, contents = slot.request, slot.contents()
    absolute = request.roots.absolute
    sources = {absolute(path): digest for path, digest in failure["sources"].items()}
    if any(contents.digest(path) != digest for path, digest in sources.items()):
        return
    if failure["is_load_error"] and failure["environment"] != _environment():
        return
    folders = [*map(os.path.dirname, request.sources), *request.extra_include_paths]
    if not any(_has_edits(path, failure["started"], sources) for path in dict.fromkeys(folders)):
        kind = LOAD_ERRORS[request.form][1] if failure["is_load_error"] else CompileError
        raise kind(failure["message"])


def _environment():
    """By which the libraries that a library needs are found."""
    return [os.environ.get(name) for name in ("LD_LIBRARY_PATH", "LD_PRELOAD")]


def _has_edits(folder, since_ns, known):
    """Whether what a compiler may read there has been written since, as headers may have been."""
    for path in itertools.islice(_files_below(folder), MOST_FILES):
        if path not in known and INCLUDED.fullmatch(os.path.splitext(path)[1]):
            with contextlib.suppress(OSError):
                if os.stat(path).st_ctime_ns >= since_ns:
                    return True
    return False


def _files_below(top):
    for folder, subfolders, names in os.walk(top):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for name in names:
            yield os.path.join(folder, name)
