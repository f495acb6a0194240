"""Says why an extension would be built now: lists every difference from its last build.

NAME is an op of the current folder's project, or otherwise an extension in the cache.
"add2[BLOCK=512]" names a variant of an op. --verbose also says whether a running process would load
the new device code before the complete build and, if not, why.
"""

import os


def add_arguments(parser):
    parser.add_argument("name", metavar="NAME", help="an op or an extension")
    verbose = "also say whether new device code would be loaded first"
    parser.add_argument("--verbose", action="store_true", help=verbose)


def run(options):
    from _jit_loader.build.why import all_reasons
    from _jit_loader.cache.store import Slot
    from _jit_loader.key import toolchain
    from _jit_loader.key.contents import Contents

    requests, memo_path = _requests(options.name)
    for request in requests:
        slot = Slot(request, memo_path, {})
        contents = Contents(slot.known())
        reasons = all_reasons(slot, toolchain.programs(request.with_cuda), contents)
        if not reasons:
            print(f"{options.name}: in the cache; nothing has changed since it was built")
            return 0
    for reason in reasons:
        print(f"{options.name}: {reason}")
    if options.verbose:
        from _jit_loader.live.load import why_complete

        complete = why_complete(slot, contents)
        way = (
            "loads new device code first"
            if complete is None
            else f"waits for the complete build: {complete}"
        )
        print(f"{options.name}: load_op in a running process {way}")
    return 0


def _requests(name):
    """Returns (requests, memo path) of a name.

    The cache is searched for the requests in their order; the last one would be built.
    """
    from _jit_loader.key import memo_paths
    from _jit_loader.ops.project import no_such_name, project_with_op
    from _jit_loader.ops.wrapper import question_of

    project = project_with_op(name)
    if project is not None:
        question = question_of(name, project)
        return question.requests(), memo_paths(question.kind, question.arguments)[0]
    found = _last_request(name)
    if found is None:
        raise no_such_name(name)
    return found


def _last_request(title):
    """Returns (requests, memo path) of a title's newest build, or None if there is no build."""
    from _jit_loader.cache.builds import newest
    from _jit_loader.key.request import Request
    from _jit_loader.key.roots import Roots

    build = newest(title)
    if build is None:
        return None
    folder, manifest = build
    recorded = manifest["request"]
    if "sources" not in recorded:
        raise FileNotFoundError(f"{title} is a kernel of cuda_kernel, whose source is not recorded")
    memo_path, project = _memo_and_project(folder, manifest)
    roots = Roots(project)
    request = Request(
        manifest["name"],
        [roots.absolute(source) for source in recorded["sources"]],
        extra_cflags=list(map(roots.absolute_text, recorded["C++ flags"])),
        extra_cuda_cflags=list(map(roots.absolute_text, recorded["nvcc flags"])),
        extra_ldflags=list(map(roots.absolute_text, recorded["linker flags"])),
        extra_include_paths=list(map(roots.absolute, recorded["include paths"])),
        with_cuda=recorded["with CUDA"],
        project=project,
        source_flags={
            roots.absolute(source): list(map(roots.absolute_text, flags))
            for source, flags in recorded["flags of single sources"].items()
        },
        form=recorded["form"],
        variant=recorded.get("variant", ""),
    )
    return [request], memo_path


def _memo_and_project(folder, manifest):
    """Returns the newest memo of a slot and the folder of its project, which manifests leave out.

    The memo may name a build that is not the newest of the slot, because the last load may have
    found an earlier one. Manifests have only relative paths of the project's files, so that a
    cache can be shared.
    """
    from _jit_loader.cache.pruning import memos

    sources = manifest["request"]["sources"]
    inside = [path[len("<project>") :] for path in sources if path.startswith("<project>/")]
    slot_folder = os.path.dirname(folder)
    newest_first = sorted(memos(), key=lambda item: -os.stat(item[0]).st_mtime)
    for memo_path, memo in newest_first:
        if inside and os.path.dirname(os.path.dirname(memo.library)) == slot_folder:
            for path in memo.paths():
                if path.endswith(inside[0]):
                    return memo_path, path[: -len(inside[0])]
    return os.devnull, os.getcwd()
