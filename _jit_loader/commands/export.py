"""Builds ops of the current folder's project for machines without a compiler.

The result is a folder for JIT_LOADER_READONLY_CACHES, for machines that have the project as well.
With --wheel it is a package for pip, whose ops need neither the project nor jit_loader. Both work
only with this version of PyTorch and of Python, and on the architectures given by --arch.
"""

import os
import sys


def add_arguments(parser):
    parser.add_argument("names", nargs="*", metavar="name", help="default: all ops of the project")
    parser.add_argument(
        "--out", metavar="DIR", help="the folder to make, or the folder for the wheel"
    )
    parser.add_argument(
        "--arch",
        nargs="+",
        default=[],
        metavar="ARCH",
        help="GPU architectures such as 8.0 9.0, or cpu for none, and processor levels such as "
        "x86-64-v3; default: those of this machine",
    )
    parser.add_argument("--wheel", metavar="NAME", help="make a wheel of the package NAME")
    parser.add_argument(
        "--keep-project",
        metavar="DIR",
        help="also write the source project of the wheel to DIR, for editing",
    )
    parser.add_argument("--verify", metavar="DIR", help="only check an exported folder")


def run(options):
    if options.verify is not None:
        return _verify(os.path.abspath(options.verify))
    if options.out is None:
        raise ValueError("there is no folder to write to: name it with --out DIR")
    if options.keep_project is not None and options.wheel is None:
        raise ValueError("--keep-project needs a wheel: name its package with --wheel NAME")
    return _wheel(options) if options.wheel is not None else _folder(options)


def _folder(options):
    from _jit_loader.cache.pruning import size_of
    from _jit_loader.export.folder import export_folder
    from _jit_loader.export.modules import op_titles
    from _jit_loader.export.targets import Architectures
    from _jit_loader.ops.project import current_project
    from _jit_loader.report.quantities import count, format_size

    folder, out = current_project(), os.path.abspath(options.out)
    titles = op_titles(options.names, folder)
    targets = Architectures(options.arch).targets(_have_kernels(titles, folder))
    export = export_folder(titles, folder, targets, out)
    print(f"{count(len(export['builds']), 'build')}, {format_size(size_of(out))}, in {out}")
    if not any(target.with_cuda for target in targets):
        _say_why_without_cuda(options, titles, folder)
    print(f"to use it: export JIT_LOADER_READONLY_CACHES={out}")
    return 0


def _wheel(options):
    from _jit_loader.export import package, wheel
    from _jit_loader.export.folder import check_free
    from _jit_loader.export.modules import op_titles
    from _jit_loader.export.targets import Architectures
    from _jit_loader.ops.project import current_project

    package.check_name(options.wheel)
    if options.keep_project is not None:
        check_free(os.path.abspath(options.keep_project))
    folder, out = current_project(), os.path.abspath(options.out)
    titles = op_titles(options.names, folder)
    level, gpus = Architectures(options.arch).of_wheel(_have_kernels(titles, folder))
    files = package.package_files(options.wheel, options.names, folder, level, gpus)
    path = wheel.build_wheel(options.wheel, files, out, bool(gpus))
    if options.keep_project is not None:
        wheel.write_project(files, os.path.abspath(options.keep_project))
    if not gpus:
        _say_why_without_cuda(options, titles, folder)
    print(f"{path}\ninstall it: pip install {path}")
    return 0


def _have_kernels(titles, folder):
    from _jit_loader.ops.project import has_cuda_kernel
    from _jit_loader.report.variants import parse

    return any(has_cuda_kernel(folder, parse(title)[0]) for title in titles)


def _say_why_without_cuda(options, titles, folder):
    """Prints why there is no CUDA code, if PyTorch has CUDA and --arch was not given."""
    import torch

    from _jit_loader.key.toolchain import why_no_cuda

    if torch.version.cuda is not None and not options.arch and _have_kernels(titles, folder):
        print(f"without CUDA code: {why_no_cuda()}")


def _verify(folder):
    from _jit_loader.export.verifying import Verification
    from _jit_loader.report.quantities import count

    found = Verification(folder)
    for path in found.damaged:
        print(f"damaged: {path}", file=sys.stderr)
    if not found.fits:
        print(
            "the export does not run on this machine; it is for",
            *found.targets,
            sep="\n  ",
            file=sys.stderr,
        )
        print(f"this machine is\n  {found.here}", file=sys.stderr)
    if found.without_gpu_code:
        print(
            "this machine has a GPU, and these ops of the export have no GPU code:",
            ", ".join(found.without_gpu_code),
            "(export again, with the GPU's architecture in --arch)",
            file=sys.stderr,
        )
    if found.damaged or not found.fits or found.without_gpu_code:
        return 1
    print(f"{count(len(found.builds), 'build')}, complete, for {found.here}")
    return 0
