"""Builds ops of the current folder's project for machines without a compiler.

What is written is a folder for JIT_LOADER_READONLY_CACHES, used where the project lies as well, or
with --wheel a package for pip, whose ops need neither the project nor jit_loader. Either is for
this version of PyTorch and of Python, and for the architectures that --arch names.
"""

import os
import sys


def add_arguments(parser):
    parser.add_argument("names", nargs="*", metavar="name", help="default: all ops of the project")
    parser.add_argument("--out", metavar="DIR", help="a new folder; of a wheel, the one it goes to")
    parser.add_argument(
        "--arch",
        nargs="+",
        default=[],
        metavar="ARCH",
        help="GPUs, as 8.0 9.0, or cpu for none, and processors, as x86-64-v3; default: this "
        "machine's own",
    )
    parser.add_argument("--wheel", metavar="NAME", help="makes a wheel of the package NAME")
    parser.add_argument(
        "--keep-project", metavar="DIR", help="the wheel's own project goes to DIR, to be edited"
    )
    parser.add_argument("--verify", metavar="DIR", help="checks an exported folder, and no more")


def run(options):
    if options.verify is not None:
        return _verify(os.path.abspath(options.verify))
    if options.out is None:
        raise ValueError("name the folder to write to: --out DIR")
    if options.keep_project is not None and options.wheel is None:
        raise ValueError("--keep-project is for a wheel's project: name the package by --wheel")
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
    print(f"where it is used: export JIT_LOADER_READONLY_CACHES={out}")
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
    """Where nobody has asked for that, and PyTorch has CUDA."""
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
        print("not for this machine; it is for", *found.targets, sep="\n  ", file=sys.stderr)
        print(f"here is\n  {found.here}", file=sys.stderr)
    if found.damaged or not found.fits:
        return 1
    print(f"{count(len(found.builds), 'build')}, whole, for {found.here}")
    return 0
