"""Says why an extension would be built now: every difference from its last build.

NAME is an op of the current folder's project, or else an extension in the cache.
"""

import os


def add_arguments(parser):
    parser.add_argument("name", metavar="NAME")


def run(options):
    from _jit_loader import toolchain
    from _jit_loader.reasons import all_reasons
    from _jit_loader.store import Slot

    slot = Slot(_request(options.name))
    programs = toolchain.programs(slot.request.with_cuda)
    reasons = all_reasons(slot, programs, slot.contents())
    if not reasons:
        print(f"{options.name}: in the cache; nothing has changed since it was built")
    for reason in reasons:
        print(f"{options.name}: {reason}")
    return 0


def _request(name):
    from _jit_loader import ops
    from _jit_loader.cache import cache_folder

    try:
        project = ops.current_project()
    except FileNotFoundError:
        project = None
    if project is not None and name in ops.op_names(project):
        return ops.request_of(name, project)
    request = _last_request(name)
    if request is None:
        where = f"in {project}" if project else f"above {os.getcwd()}"
        raise FileNotFoundError(
            f"there is no op {name!r} {where}, and no build of that name in {cache_folder()}"
        )
    return request


def _last_request(name):
    """What the newest build of a name was asked for; None without a build."""
    from _jit_loader.builds import manifests
    from _jit_loader.request import Request, Roots

    builds = sorted(manifests([name]), key=lambda build: -build[1]["created"])
    if not builds:
        return None
    folder, manifest = builds[0]
    asked = manifest["request"]
    roots = Roots(_project_of(folder, manifest))
    return Request(
        name,
        [roots.absolute(source) for source in asked["sources"]],
        extra_cflags=list(map(roots.absolute_text, asked["C++ flags"])),
        extra_cuda_cflags=list(map(roots.absolute_text, asked["nvcc flags"])),
        extra_ldflags=list(map(roots.absolute_text, asked["linker flags"])),
        extra_include_paths=list(map(roots.absolute, asked["include paths"])),
        with_cuda=asked["with CUDA"],
        project=roots.folders["project"],
        source_flags={
            roots.absolute(source): flags
            for source, flags in asked["flags of single sources"].items()
        },
    )


def _project_of(folder, manifest):
    """The folder that '<project>' stood for when a build was last loaded, by what its memo names.

    Manifests know the project's files by relative paths only, so that a cache can be shared.
    """
    from _jit_loader.pruning import memos

    inside = [path[len("<project>") :] for path in manifest["own"] if path.startswith("<project>/")]
    if not inside:
        return os.getcwd()
    newest_first = sorted(memos(), key=lambda item: -os.stat(item[0]).st_mtime)
    for _, memo in newest_first:
        paths = memo.paths()
        if any(os.path.dirname(path) == folder for path in paths):
            for path in paths:
                if path.endswith(inside[0]):
                    return path[: -len(inside[0])]
    return os.getcwd()
