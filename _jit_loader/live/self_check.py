"""Compares the device code of a complete build with what NVRTC makes of the same sources.

A low-priority process does it after each build. It finds what NVRTC compiles differently from
nvcc before a live edit uses it, and after a live edit, whether that one ran other code. Another one
reads the headers during the build.
"""

import contextlib
import os
import time

from _jit_loader.build.inputs.compilers import read_depfile
from _jit_loader.build.inputs.records import user_file_filter
from _jit_loader.build.record import TEXTS
from _jit_loader.cache import cache_folder
from _jit_loader.cache.files import read_bytes, read_checked, write_checked
from _jit_loader.cache.lock import build_lock
from _jit_loader.cache.store import records_of
from _jit_loader.cuda.ptxas import readable
from _jit_loader.key.roots import Roots
from _jit_loader.live.compare_cubins import compare, cubin_of
from _jit_loader.live.edit import LIVE, Inputs, NotLive, inputs_of
from _jit_loader.live.host_code import host_code, host_digest, line_numbers
from _jit_loader.live.program import compile_device, program_of
from _jit_loader.system.processes import POLL_SECONDS

LONGEST_SECONDS = 120  # until g++ has preprocessed a source
MOST_KERNELS = 64  # of a source: NVRTC takes 0.03 to 0.5 s for each


def read_headers(folder, project, sources):
    """Reads the headers of sources that nvcc compiles: the cache keeps what an edit needs of them.

    It takes 10 s with PyTorch's. folder: of the build. sources: [(an object, its source, the words
    of nvcc's command, nvcc's tools)].
    """
    for output, source, command, tools in sources:
        path, end = os.path.join(folder, output), time.monotonic() + LONGEST_SECONDS
        depfile = f"{path}.steps/0.d"  # of cuda/halves.py, once g++ has preprocessed the source
        while not any(map(os.path.exists, (depfile, path))) and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        with contextlib.suppress(Exception):  # an edit then reads them itself
            files = filter(user_file_filter(Roots(project), tools), read_depfile(depfile, folder))
            texts = {each: read_bytes(each).decode() for each in files}
            with _turn("headers"):
                host_code(source, texts, command)
                program_of(Inputs(source, texts, command, set()), [])


def _turn(title):
    """Waits for the end of other builds and checks that nobody waits for; returns the lock."""
    return build_lock(os.path.join(cache_folder(), "background"), title)


def self_check(folder, project, host_objects=()):
    """Writes live.json of a build, if it has none; returns {source: its answer}.

    host_objects: the objects with whose host code a live edit of the same files runs. Their host
    code is equal but for numbers of lines, unless the lexer has mistaken host code for device code.

    An answer has "removed": for compile_device; "kernels": {mangled name: None, or how the code
    differs}; "reason": why edits of the source take the complete build, or None; and "differs":
    whether a live edit has run other code.
    """
    path = os.path.join(folder, LIVE)
    with _turn(os.path.basename(folder)):
        found = None if host_objects else read_checked(path)
        if found is None:
            found = _answers(folder, Roots(project), {os.path.basename(o): o for o in host_objects})
            write_checked(path, found)
    return found


def _answers(folder, roots, before):
    texts, found = read_checked(os.path.join(folder, TEXTS)) or {}, {}
    for built, record in records_of(folder).items():
        if record is not None and "nvcc" in record:
            answer = {"removed": [], "kernels": {}, "reason": None, "differs": False}
            found[record["source"]] = answer
            earlier = before.get(os.path.basename(built), built)
            try:
                if host_digest(earlier) != host_digest(built):
                    answer["differs"] = True
                    _check_only_lines_differ(earlier, built, record, texts, roots)
                    answer["differs"] = False
                _compare(built, record, texts, roots, answer)
                for name, difference in answer["kernels"].items():
                    if difference is not None:
                        answer["differs"] = True
                        kernel = readable(name)
                        raise NotLive(f"NVRTC and nvcc compile {kernel} differently: {difference}")
            except Exception as error:  # what is not understood is not compared, and so not live
                answer["reason"] = str(error).partition("\n")[0] or type(error).__name__
    return found


def _check_only_lines_differ(earlier, built, record, texts, roots):
    """Raises NotLive if the host code may differ in more than the numbers of its lines."""
    before = read_checked(os.path.join(os.path.dirname(earlier), TEXTS)) or {}
    lines = [line_numbers(*inputs_of(record, each, roots)[:3]) for each in (before, texts)]
    if lines[0] == lines[1] or host_digest(earlier, len) != host_digest(built, len):
        raise NotLive("the host code has changed too")


def _compare(built, record, texts, roots, answer):
    """Compares the kernels of an object; raises what compile_device raises."""
    inputs = inputs_of(record, texts, roots)
    host_code(*inputs[:3])  # the cache keeps the headers' macros, which takes seconds, for an edit
    kernels = sorted(inputs.kernels)[:MOST_KERNELS]
    cubin, answer["removed"] = compile_device(inputs, kernels)
    answer["kernels"] = compare(cubin, cubin_of(built, cubin), kernels)
