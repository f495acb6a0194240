"""Says why an op would be built now: lists every difference from its last build.

NAME is an op of the current folder's project; "add2[BLOCK=512]" names a variant of it. --verbose
also says whether a running process would load the new device code before the complete build and, if
not, why. For an extension of load or load_inline, the line of its next build says what changed.
"""

import os


def add_arguments(parser):
    parser.add_argument("name", metavar="NAME", help="an op")
    verbose = "also say whether new device code would be loaded first"
    parser.add_argument("--verbose", action="store_true", help=verbose)


def run(options):
    from _jit_loader.build.checks import all_reasons
    from _jit_loader.cache.store import Builds
    from _jit_loader.key.digests import Digests

    requests, memo_path = _requests(options.name)
    for request in requests:
        builds = Builds(request, memo_path, {})
        digests = Digests(builds.known())
        reasons = all_reasons(builds, digests)
        if not reasons:
            print(f"{options.name}: in the cache; nothing has changed since it was built")
            return 0
    for reason in reasons:
        print(f"{options.name}: {reason}")
    if options.verbose:
        from _jit_loader.live.load import why_complete

        complete = why_complete(builds, digests)
        way = (
            "loads new device code first"
            if complete is None
            else f"waits for the complete build: {complete}"
        )
        print(f"{options.name}: load_op in a running process {way}")
    return 0


def _requests(name):
    """Returns (requests, memo path) of an op.

    The cache is searched for the requests in their order; the last one would be built.
    """
    from _jit_loader.key import memo_paths
    from _jit_loader.ops.load_op import call_of
    from _jit_loader.ops.project import project_with_op

    project = project_with_op(name)
    if project is None:
        raise FileNotFoundError(
            f"there is no op {name!r} in the project of {os.getcwd()}. For an extension of load or "
            "load_inline, the line that its next build prints says what has changed"
        )
    call = call_of(name, project)
    return call.requests(), memo_paths(call.kind, call.arguments)[0]
