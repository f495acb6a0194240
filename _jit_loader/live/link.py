"""Compiles the CPU objects that an edit affects, and links them with the other objects."""

import os

from _jit_loader.build.build import ninja_file_of
from _jit_loader.build.job import Job, private_folder
from _jit_loader.build.ninja import Compilation
from _jit_loader.build.plan import Plan
from _jit_loader.build.precompiled import Headers
from _jit_loader.build.pytorch import libraries
from _jit_loader.cache.files import link_or_copy
from _jit_loader.cache.store import Build


def link_library(builds, digests, build, outputs):
    """Returns the bytes of a library of new objects and of the other objects of a build.

    outputs: the names of the objects to compile.

    Raises RuntimeError if compiling or linking fails.
    """
    request = builds.request
    with private_folder(builds.folder) as folder:
        job = Job(builds, folder, digests)
        ninja_file = ninja_file_of(job)
        reused = dict.fromkeys(set(ninja_file.compilations) - set(outputs))
        for output in reused:
            link_or_copy(os.path.join(build.folder, output), os.path.join(folder, output))
        link_stubs = libraries.Stubs(ninja_file.link_flags, request.extra_ldflags, folder)
        plan = Plan(ninja_file, reused, dict.fromkeys(outputs))
        headers = Headers(job, ninja_file, plan.missing)
        with Compilation(job, plan, link_stubs, headers) as compilation:
            for _ in compilation.steps():
                pass
        if compilation.returncode != 0:
            raise RuntimeError("the CPU code does not compile")
        with open(Build(folder, request).library, "rb") as file:
            return file.read()
