"""Says why an extension would be built now: lists every difference from its last build.

NAME is an op of the current folder's project; "add2[BLOCK=512]" names a variant of it. Otherwise
NAME is an extension of load or load_inline in the cache, as it was built last: run the command in
the folder of its sources, or below. --verbose also says whether the next load makes a live edit
(new device code now, the complete build later) and whether torch/extension.h is compiled without
PyTorch's C++ frontend, and, if not, why.
"""

import os
from pathlib import Path


def add_arguments(parser):
    parser.add_argument("name", metavar="NAME", help="an op or an extension")
    verbose = "also say whether the next load makes a live edit, and which headers are compiled"
    parser.add_argument("--verbose", action="store_true", help=verbose)


def run(options):
    from _jit_loader.build.checks import all_reasons
    from _jit_loader.cache.store import Builds
    from _jit_loader.key.digests import Digests

    name = options.name
    for request in _requests(name):  # the last one would be built
        builds = Builds(request, "", {})
        digests = Digests(builds.known())
        if is_built := builds.find(digests) is not None:
            break
    unchanged = ["in the cache; nothing has changed since it was built"]
    for reason in unchanged if is_built else all_reasons(builds, digests):
        print(f"{name}: {reason}")
    if options.verbose:
        from _jit_loader.build.pytorch.extension_header import choose
        from _jit_loader.live.edit import self_check_answers
        from _jit_loader.live.load import why_complete

        for source, reason in choose(request).items():
            content = "lacks the C++ frontend" if reason is None else f"is complete: {reason}"
            path = os.path.relpath(source, request.project)
            print(f"{name}: {path}: torch/extension.h {content}")
        if not is_built:
            complete = why_complete(builds, digests)
            way = f"waits for the complete build: {complete}" if complete else "makes a live edit"
            print(f"{name}: the next load {way}")
        for source, answer in self_check_answers(builds.earlier()[0]).items() if is_built else ():
            if answer["reason"]:
                print(f"{name}: {os.path.basename(source)} has no live edits: {answer['reason']}")
    return 0


def _requests(name):
    """Returns the requests of an op, or the last one of an extension with sources here or above."""
    from _jit_loader.cache import cache_folder
    from _jit_loader.cache.pruning import newest_first
    from _jit_loader.key.request import request_of
    from _jit_loader.ops.load_op import op_arguments, op_call
    from _jit_loader.ops.project import project_with_op

    if (project := project_with_op(name)) is not None:
        return op_call(*op_arguments(name, project)).requests()
    for folder, manifest in newest_first(name):
        if "sources" not in manifest["request"]:
            raise ValueError(f"{name} is a cuda_kernel: each text of it has another build")
        text_digest = os.path.basename(os.path.dirname(folder)).partition("-")[2]
        texts = os.path.join(cache_folder(), "inline", text_digest)
        for project in texts, *map(str, (Path.cwd(), *Path.cwd().parents)):
            request = request_of(manifest["request"], project, text_digest)
            if all(map(os.path.exists, request.sources)):
                return [request]
    sources = ", ".join(manifest["request"]["sources"]).replace("<project>/", "")
    raise FileNotFoundError(f"no folder from {Path.cwd()} up has {sources}: change to their folder")
