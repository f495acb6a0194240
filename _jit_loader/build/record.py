"""The records of objects: what they were made from, and which of earlier builds are reused.

A record has the inputs of an object, and of a CUDA object the kernels' registers.
"""

import contextlib
import glob
import os
import time

from _jit_loader.build.inputs.compilers import linked_files, read_depfile
from _jit_loader.build.inputs.records import merged
from _jit_loader.cache import PRECOMPILED, cache_folder, digest_of
from _jit_loader.cache.build_directory import put_object
from _jit_loader.cache.files import link_atomically, read_checked, write_checked
from _jit_loader.cache.store import RECORD, fits
from _jit_loader.key.digests import digest_of_bytes, read_digest

TEXTS = "texts.json"
CANDIDATES = 16  # the newest records that are tried per object; each takes 0.3 ms to read


def reusable_objects(job):
    """Puts objects of earlier builds into the folder; returns {object: its record}.

    It tells the recorder the files that are to be compiled.
    """
    reused, inputs = {}, set(job.request.sources)
    for output in job.ninja_file.compilations:
        known = _known_objects(os.path.dirname(job.builds.folder), output)
        if known and known[0][1].get("needs frontend"):
            job.ninja_file.add_frontend({output})
        if (record := _take_object(job, output, known)) is not None:
            reused[output] = record
        elif known:
            inputs.update(map(job.request.roots.absolute, known[0][1]["files"]))
    job.recorder.expect(inputs)
    return reused


def command_key(job, output):
    """Returns a digest of the command that compiles an object, and of what else it depends on."""
    words = map(job.request.roots.relative_text, job.ninja_file.command(output))
    others = ("environment variables", "CPU and GPU for -march=native")
    return digest_of([list(words), *map(job.request.description.get, others)])


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
        if record["command"] != key or not fits(record, job.request, job.digests):
            continue
        try:
            link_atomically(path, target)
            link_atomically(path + RECORD, target + RECORD)
            if read_digest(target) == record["object"]:
                return record
        except OSError:
            pass  # another process is removing that build
        # The compiler would overwrite the published object through a leftover link.
        for rest in (target, target + RECORD):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(rest)
    return None


def record_object(job, output, compilers, in_header):
    """Writes the record of a new object next to the object; returns the record, or None.

    None: the source did not compile, or its compiler listed no files; see unrecorded().
    compilers: a future of records.query_compilers. in_header: the files that the compiler does not
    list because it has read a precompiled header.

    Raises:
        InputsChanged: an input was edited while it was compiled.
    """
    path, ninja_file = os.path.join(job.folder, output), job.ninja_file
    if not os.path.exists(path):
        return None
    if job.request.build_directory:
        put_object(job.request.build_directory, path)
    source, depfile = ninja_file.compilations[output], path + ".d"
    if source.endswith(".s"):  # only the assembler runs, and it writes no depfile
        files = [source]
    elif not os.path.exists(depfile):
        return None
    else:
        files = read_depfile(depfile, job.folder)
        os.unlink(depfile)
        cache = os.path.join(cache_folder(), PRECOMPILED, "")
        files = [path for path in files if not path.startswith(cache)]
        files += in_header
    command = ninja_file.command(output)
    inputs = job.recorder.of_object(source, command, files, compilers.result()[output])
    record = {"command": command_key(job, output), "object": job.digests.digest(path), **inputs}
    record["needs frontend"] = output in ninja_file.needs_frontend
    write_checked(path + RECORD, record)
    return record


def all_records(job, reused, recordings, compilation):
    """Returns {object: its record} of all objects; those that did not compile have none.

    reused: as reusable_objects() returns. recordings: {object: a future of record_object that has
    ended}.
    """
    recorded = {output: future.result() for output, future in recordings.items()}
    new = {output: record for output, record in recorded.items() if record is not None}
    for output in compilation.failed_steps() & new.keys():  # its compiler has written it
        del new[output]
        os.unlink(os.path.join(job.folder, output))
        os.unlink(os.path.join(job.folder, output + RECORD))
    _record_kernels(job, new, compilation.lines_of)
    known = {**reused, **new}  # in the order of the sources, as messages list them
    return {output: known[output] for output in job.ninja_file.compilations if output in known}


def unrecorded(job, records):
    """Returns an error for each object without a record, after a compilation without errors."""
    relative, sources = job.request.roots.relative, job.ninja_file.compilations
    names = [relative(source) for output, source in sources.items() if output not in records]
    return [
        f"error: {name.removeprefix('<project>/')}: its compiler, or a wrapper of it, wrote no "
        "object or no list of the files that it has read (-MF)"
        for name in names
    ]


def _record_kernels(job, records, lines_of):
    """Adds ptxas's figures and nvcc's command to the records of new CUDA objects.

    lines_of: {object: the lines that its compiler printed}.
    """
    ninja_file = job.ninja_file
    for output in filter(ninja_file.is_cuda, records):
        from _jit_loader.cuda import ptxas  # builds of C++ import no module of cuda/

        path = os.path.join(job.folder, output)
        records[output].update(
            source=job.request.roots.relative(ninja_file.compilations[output]),
            kernels=ptxas.kernels(lines_of.get(output, [])),
            nvcc=list(map(job.request.roots.relative_text, ninja_file.command(output))),
        )
        write_checked(path + RECORD, records[output])


def record_texts(job, records):
    """Writes the texts of the user files of CUDA objects, with which a live edit compares the next.

    records: of all objects. A file that has changed or is not UTF-8 is left out.
    """
    texts = {}
    for record in records:
        for name in record["user files"] if "nvcc" in record else ():
            path = job.request.roots.absolute(name)
            with contextlib.suppress(OSError, UnicodeDecodeError), open(path, "rb") as file:
                data = file.read()
                if digest_of_bytes(data) == record["files"][name]:
                    texts[name] = data.decode()
    if texts:
        write_checked(os.path.join(job.folder, TEXTS), texts)


def make_manifest(job, records, trace):
    """Returns the manifest of the build; records: of all objects, trace: the linker's output."""
    link = job.recorder.of_link(job.ninja_file, linked_files(trace, job.folder))
    return {
        "name": job.request.name,
        "created": time.time(),
        "request": job.request.description,
        "library": job.digests.digest(os.path.join(job.folder, job.ninja_file.library)),
        **merged([*records, link], job.request),
    }
