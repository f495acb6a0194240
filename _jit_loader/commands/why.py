"""Says why an op would be built now: lists every difference from its last build.

NAME is an op of the current folder's project; "add2[BLOCK=512]" names a variant of it. --verbose
also says whether the next load makes a live edit (new device code now, the complete build later)
and whether torch/extension.h is compiled without PyTorch's C++ frontend, and, if not, why. For an
extension of load or load_inline, the line of its next build says what changed.
"""

import os


def add_arguments(parser):
    parser.add_argument("name", metavar="NAME", help="an op")
    verbose = "also say whether the next load makes a live edit, and which headers are compiled"
    parser.add_argument("--verbose", action="store_true", help=verbose)


def run(options):
    from _jit_loader.build.checks import all_reasons
    from _jit_loader.cache.store import Builds, fits
    from _jit_loader.key import memo_paths
    from _jit_loader.key.digests import Digests
    from _jit_loader.ops.load_op import op_arguments, op_call
    from _jit_loader.ops.project import project_with_op

    name, project = options.name, project_with_op(options.name)
    if project is None:
        raise FileNotFoundError(
            f"there is no op {name!r} in the project of {os.getcwd()}. For an extension of load or "
            "load_inline, the line that its next build prints says what has changed"
        )
    call = op_call(*op_arguments(name, project))
    memo_path = memo_paths(call.kind, call.arguments)[0]
    for request in call.requests():  # the last one would be built
        builds = Builds(request, memo_path, {})
        digests = Digests(builds.known())
        manifests = (manifest for _, manifest in builds.manifests())
        if any(fits(manifest, request, digests) for manifest in manifests):
            print(f"{name}: in the cache; nothing has changed since it was built")
            return 0
    for reason in all_reasons(builds, digests):
        print(f"{name}: {reason}")
    if options.verbose:
        from _jit_loader.build.pytorch.extension_header import choose
        from _jit_loader.live.load import why_complete

        for source, reason in choose(request).items():
            content = "lacks the C++ frontend" if reason is None else f"is complete: {reason}"
            print(f"{name}: {os.path.relpath(source, project)}: torch/extension.h {content}")
        complete = why_complete(builds, digests)
        way = f"waits for the complete build: {complete}" if complete else "makes a live edit"
        print(f"{name}: the next load {way}")
    return 0
