"""Builds ops of the current folder's project for machines without a compiler.

The result is a folder for JIT_LOADER_READONLY_CACHES, for machines that have the project as well.
With --wheel it is the source of a package, whose ops need neither the project nor jit_loader; pip
makes a wheel of it. Both work only with this version of PyTorch and of Python, and on the
architectures given by --arch.
"""

import os


def add_arguments(parser):
    parser.add_argument("names", nargs="*", metavar="name", help="default: all ops of the project")
    parser.add_argument(
        "--out",
        metavar="DIR",
        required=True,
        help="the folder to add builds to, or the new folder for the source of the wheel",
    )
    parser.add_argument(
        "--arch",
        nargs="+",
        default=[],
        metavar="ARCH",
        help="GPU architectures such as 8.0 9.0, or cpu for none, and processor levels such as "
        "x86-64-v3; default: those of this machine",
    )
    parser.add_argument("--wheel", metavar="NAME", help="write the source of the package NAME")


def run(options):
    from _jit_loader.export.modules import op_titles
    from _jit_loader.ops.project import current_project, has_cuda_kernel
    from _jit_loader.report.requests import parse

    project, out = current_project(), os.path.abspath(options.out)
    titles = op_titles(options.names, project)
    has_kernels = any(has_cuda_kernel(project, parse(title)[0]) for title in titles)
    export = _folder if options.wheel is None else _wheel
    with_cuda, next_step = export(options, titles, project, out, has_kernels)
    if has_kernels and not with_cuda and not options.arch:
        _say_why_without_cuda()
    print(f"{out}\n{next_step}")
    return 0


def _folder(options, titles, project, out, has_kernels):
    from _jit_loader.export.folder import export_folder
    from _jit_loader.export.targets import targets_of

    targets = targets_of(options.arch, has_kernels)
    export_folder(titles, project, targets, out)
    with_cuda = any(target.gpus != [] for target in targets)
    return with_cuda, f"to use it: export JIT_LOADER_READONLY_CACHES={out}"


def _wheel(options, titles, project, out, has_kernels):
    from _jit_loader.export.targets import parse
    from _jit_loader.export.wheel import write_project
    from _jit_loader.key import toolchain
    from _jit_loader.key.nvcc import cuda_home

    levels, each = parse(options.arch, has_kernels)
    if len(levels) > 1:
        raise ValueError("--arch: a wheel is for one level of x86-64 and the levels above it")
    if each == [None]:
        gpus = os.environ["TORCH_CUDA_ARCH_LIST"]
    else:
        gpus = ";".join(gpu for gpus in each for gpu in gpus)
    write_project(options.wheel, options.names, project, levels[0], gpus, out)
    # PyTorch does not find every toolkit that the loader finds.
    home = cuda_home() if gpus and toolchain.nvcc_path() is not None else None
    pip = f"pip wheel --no-deps --no-build-isolation {out}"
    return bool(gpus), f"to make the wheel: {f'CUDA_HOME={home} {pip}' if home else pip}"


def _say_why_without_cuda():
    """Prints why there is no CUDA code, if PyTorch has CUDA."""
    import torch

    from _jit_loader.key.toolchain import why_no_cuda

    if torch.version.cuda is not None:
        print(f"without CUDA code: {why_no_cuda()}")
