"""The plan of a build: which objects are reused, and which have to be compiled."""

import os
from typing import NamedTuple

from _jit_loader.build.inputs.records import InputsChanged
from _jit_loader.build.objects import ObjectStore
from _jit_loader.build.pytorch.ninja_file import NinjaFile
from _jit_loader.cache import digest_of
from _jit_loader.system.jobs import parallel_jobs

NAME_MACRO = "TORCH_EXTENSION_NAME"  # PyTorch passes it to every compilation


class Plan(NamedTuple):
    """The steps that a build needs.

    reused: {object: its record}, linked into the folder. missing: {object: the record of its last
    build, or None}, to be compiled.
    """

    ninja_file: NinjaFile
    reused: dict
    missing: dict

    def expected_seconds(self, precompiled):
        """Returns the seconds that the compilation takes if the objects take as long as last time.

        The result is 0 if this is unknown: an object has not been compiled before, or only one of
        the two compilations uses a precompiled header, which cuts the time to a third.

        precompiled: the objects that use a precompiled header.
        """
        seconds = []
        for output, record in self.missing.items():
            if record is None or record["precompiled"] != (output in precompiled):
                return 0
            seconds.append(record["seconds"])
        return max([sum(seconds) / min(parallel_jobs(), max(len(seconds), 1)), *seconds])


def make_plan(job, ninja_file):
    """Returns the Plan, and puts the digests of the files to compile into job.before."""
    store, request = _store(job), job.request
    reused, missing = {}, {}
    for output in ninja_file.compilations:
        known = store.newest(output)
        key = command_key(request, ninja_file, output)
        record = store.take(output, key, job.folder, known, job.careful)
        if record is not None:
            reused[output] = record
            continue
        missing[output] = None
        if known:
            missing[output] = known[0][1]
            for path in map(request.roots.absolute, missing[output]["files"]):
                job.before[path] = job.digests.digest(path)
    for source in request.sources:
        job.before[source] = job.digests.digest(source)
    return Plan(ninja_file, reused, missing)


def check_reused(job, plan):
    """Compares all inputs of the reused objects; raises InputsChanged if an object does not fit."""
    store = _store(job)
    for output, record in plan.reused.items():
        path = f"{job.folder}/{output}"
        if not store.still_fits(record, path):
            raise InputsChanged([path])


def command_key(request, ninja_file, output):
    """Returns a digest of the command that compiles an object, and of its environment."""
    words = [request.roots.relative_text(word) for word in ninja_file.command(output)]
    return digest_of([words, request.description["environment variables"]])


def _store(job):
    name_folder = os.path.dirname(job.builds.folder)
    return ObjectStore(name_folder, job.request.roots, job.programs, job.digests)
