"""The plan of a build: which objects of earlier builds are reused, and which are compiled."""

import contextlib
import glob
import os
from typing import NamedTuple

from _jit_loader.cache import digest_of
from _jit_loader.cache.files import link_or_copy, read_checked
from _jit_loader.cache.store import fits
from _jit_loader.key.digests import read_digest
from _jit_loader.system.jobs import parallel_jobs

NAME_MACRO = "TORCH_EXTENSION_NAME"  # PyTorch passes it to every compilation
RECORD = ".json"  # the ending of an object's record, which record.py writes
CANDIDATES = 16  # the newest records that are tried per object; each takes 0.3 ms to read


class Plan(NamedTuple):
    """The steps that a build needs.

    reused: {object: its record}, linked into the folder. missing: {object: the record of its last
    build, or None}, to be compiled.
    """

    reused: dict
    missing: dict

    def expected_seconds(self):
        """Returns the seconds that the compilation takes if the objects take as long as last time.

        The result is 0 if an object has not been compiled before.
        """
        if None in self.missing.values():
            return 0
        seconds = [record["seconds"] for record in self.missing.values()]
        return max([sum(seconds) / min(parallel_jobs(), max(len(seconds), 1)), *seconds])


def make_plan(job):
    """Returns the Plan, and tells the recorder the files that are to be compiled."""
    reused, missing = {}, {}
    for output in job.ninja_file.compilations:
        known = _known_objects(os.path.dirname(job.builds.folder), output)
        if known and known[0][1].get("needs frontend"):
            job.ninja_file.add_frontend({output})
        record = _take_object(job, output, known)
        if record is not None:
            reused[output] = record
        else:
            missing[output] = known[0][1] if known else None
    inputs = set(job.request.sources)
    for record in filter(None, missing.values()):
        inputs.update(map(job.request.roots.absolute, record["files"]))
    job.recorder.expect(inputs)
    return Plan(reused, missing)


def command_key(job, output):
    """Returns a digest of the command that compiles an object, and of its environment."""
    words = map(job.request.roots.relative_text, job.ninja_file.command(output))
    return digest_of([list(words), job.request.description["environment variables"]])


def _known_objects(name_folder, output):
    """Returns [(path, record)] of the versions of one object, the newest first."""
    found = {}
    for path in glob.glob(os.path.join(glob.escape(name_folder), "*", "*", output + RECORD)):
        with contextlib.suppress(OSError):
            status = os.stat(path)
            found[status.st_ino] = status.st_mtime_ns, path  # builds share hard links
    newest = sorted(found.values(), reverse=True)[:CANDIDATES]
    records = ((path.removesuffix(RECORD), read_checked(path)) for _, path in newest)
    return [(path, record) for path, record in records if record is not None]


def _take_object(job, output, known):
    """Puts a hard link to a matching object into the job's folder; returns its record, or None.

    known: [(path, record)] of its versions.
    """
    target, key = os.path.join(job.folder, output), command_key(job, output)
    for path, record in known:
        if record["command"] != key:
            continue
        if not fits(record, job.request, job.digests):
            continue
        try:
            link_or_copy(path, target)
            link_or_copy(path + RECORD, target + RECORD)
            if read_digest(target) == record["object"]:
                return record
        except OSError:
            pass  # another process is removing that build
        # A leftover link would make link_or_copy overwrite a published object.
        for rest in (target, target + RECORD):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(rest)
    return None
