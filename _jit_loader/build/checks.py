"""What is known before a build: why it is needed, and why it would fail."""

import errno
import glob
import os
import re
import signal

from _jit_loader.build.ninja import compile_seconds_limit, ninja_path
from _jit_loader.cache import caches, readonly_caches
from _jit_loader.cache.store import differences, read_manifest
from _jit_loader.key import toolchain
from _jit_loader.report.errors import CompilingForbidden, CudaMissing, ToolMissing
from _jit_loader.report.requests import change_texts, request_changes
from _jit_loader.system import is_set

MOST_REASONS = 8  # in an error
FOLDER = re.compile(r"(?<!\S)-(?:I|L|isystem)\s*([^\s/]\S*)")  # relative to the build_directory
NEVER_BUILT = "it has never been built"


def why_built(builds, digests):
    """Returns the reason for a build, such as 'kernels/add2.cu changed' or 'first build'."""
    first, *others = all_reasons(builds, digests)
    if first == NEVER_BUILT:
        return "first build"
    return f"{first} and {len(others)} more" if others else first


def all_reasons(builds, digests):
    """Returns a line for each difference from the last build, if no build fits."""
    if (newest := next(builds.manifests(), None)) is not None:
        build, manifest = newest
        changes = change_texts(differences(manifest, builds.request, digests))
        return changes or [f"{build.library} is damaged"]
    if (last := _last_of_name(builds)) is None:
        return [NEVER_BUILT]
    old, new = last["request"], builds.request.description
    files = change_texts(differences(last, builds.request, digests))
    if old["PyTorch"] != new["PyTorch"]:  # one line for its 5,000 headers
        files = [line for line in files if not line.startswith("<packages>/torch/")]
    settings = [line for key in new for line in request_changes(key, old.get(key), new[key])]
    # Another version of the loader describes the same request in other rows.
    return [*settings, *files] or ["the loader changed"]


def _last_of_name(builds):
    """Returns the manifest of the newest build of the same name and variant, with any flags.

    Another extension of that name has no source with the same file name.
    """
    name, variant = builds.request.name, builds.request.description.get("variant")
    sources, folders = {*map(os.path.basename, builds.request.sources)}, []
    for cache in caches():
        folders += glob.glob(os.path.join(glob.escape(cache), name, "*", "*", ""))
    found = [manifest for manifest in map(read_manifest, folders) if manifest is not None]
    found = [manifest for manifest in found if manifest["request"].get("variant") == variant]
    found = [m for m in found if sources & {*map(os.path.basename, m["request"]["sources"])}]
    return max(found, key=lambda manifest: manifest["created"], default=None)


def check_request(all_builds, digests):
    """Raises the error that a build of the last request would certainly end with.

    all_builds: the store.Builds of all requests that the cache was searched for. The first is the
    one that the caller prefers; the error says why none of its builds fits.
    """
    request = all_builds[-1].request
    if is_set("JIT_LOADER_NO_COMPILE"):
        raise CompilingForbidden(
            f"{request.title} has to be compiled, but JIT_LOADER_NO_COMPILE is set:\n  "
            f"{_no_build_fits(all_builds[0], digests)}\nLoad it once with the same cache where "
            f"compiling is allowed; or run `python -m jit_loader export {request.name} --out DIR` "
            "for an op, and name DIR in JIT_LOADER_READONLY_CACHES here"
        )
    try:
        check_tools(request)
    except ToolMissing as error:
        shared = ", ".join(os.path.dirname(cache) for cache in readonly_caches())
        if not shared:
            raise
        reasons = _no_build_fits(all_builds[0], digests)
        raise type(error)(f"{error}\nNo build in {shared} fits:\n  {reasons}") from None
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        raise RuntimeError(
            f"{request.title} has to be compiled, and this program ignores SIGCHLD, so the exit "
            "codes of compilers are lost. Before the load, call "
            "signal.signal(signal.SIGCHLD, signal.SIG_DFL)"
        )
    compile_seconds_limit()
    _check_arguments(request)


def _no_build_fits(builds, digests):
    """Returns lines that say why."""
    missing = [f"{cache} does not exist" for cache in readonly_caches() if not os.path.isdir(cache)]
    return "\n  ".join([*missing, *all_reasons(builds, digests)[:MOST_REASONS]])


def check_tools(request):
    """Raises ToolMissing if a tool is missing; the message says what to install."""
    needed = f"{request.title} has to be compiled, and"
    command = toolchain.cxx_command()
    if toolchain.find_program(command[0]) is None:
        raise ToolMissing(
            f"{needed} the C++ compiler {command[0]!r} was not found on PATH. Install g++ (Debian, "
            "Ubuntu: apt-get install g++), or name a compiler in the environment variable CXX"
        )
    if ninja_path() is None:
        raise ToolMissing(f"{needed} ninja was not found. Run: pip install ninja")
    if not request.with_cuda:
        return
    why_not = toolchain.why_no_cuda()
    if why_not is None and toolchain.cuda_home() is None:
        why_not = (
            f"{toolchain.nvcc_path()} does not print its Toolkit's folder. Name the folder of a "
            "CUDA Toolkit in the environment variable CUDA_HOME"
        )
    if why_not is not None:
        raise CudaMissing(f"{request.title} has CUDA code to compile: {why_not}")


def _check_arguments(request):
    """Raises an error for a source that does not exist, and for what the tools cannot take."""
    title = request.title
    for source in request.sources:
        if not os.path.isfile(source):
            raise FileNotFoundError(errno.ENOENT, f"{title}: there is no such source file", source)
    # nvcc passes paths to the shell between double quotes.
    tool, refused = ("nvcc", '\n\t$"`') if request.with_cuda else ("ninja", "\n")
    for path in [*request.sources, *request.extra_include_paths]:
        if set(path) & set(refused):
            raise ValueError(f"{title}: {tool} takes no path with any of {refused!r}: {path!r}")
    arguments = {
        "extra_cflags": request.extra_cflags,
        "extra_cuda_cflags": request.extra_cuda_cflags,
        "extra_ldflags": request.extra_ldflags,
        **{f"the flags of {source}": flags for source, flags in request.source_flags.items()},
    }
    for argument, flags in arguments.items():
        where, text = f"{title}: {argument}", " ".join(flags)
        if "\n" in text:
            raise ValueError(f"{where}: ninja cannot take a flag with a line break: {flags!r}")
        toolchain.split(text, where)
        for path in FOLDER.findall(text) if request.build_directory else ():
            # PyTorch's compilers ignore a folder that does not exist.
            if path != "." and os.path.isdir(os.path.join(request.build_directory, path)):
                raise ValueError(
                    f"{where}: give the absolute path of {path}: the compilers run in a folder of "
                    "the cache, and not in build_directory"
                )
