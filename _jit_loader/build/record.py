"""Records the inputs of each object and of the library, and the kernels' registers and sources."""

import contextlib
import errno
import os
import time

from _jit_loader.build.inputs.compilers import linked_files, read_depfile
from _jit_loader.build.inputs.records import merged
from _jit_loader.build.plan import RECORD, command_key
from _jit_loader.cache import cache_folder
from _jit_loader.cache.build_directory import put_object
from _jit_loader.cache.files import write_checked
from _jit_loader.cache.headers import PRECOMPILED
from _jit_loader.key.digests import digest_of_bytes

TEXTS = "texts.json"


def record_object(job, output, compilers, in_header):
    """Writes the record of a new object next to the object; returns the record, or None.

    None: the source did not compile.
    compilers: a future of records.query_compilers. in_header: the files that the compiler does not
    list because it has read a precompiled header.

    Raises:
        InputsChanged: an input was edited while it was compiled.
        OSError: the object has no header, which GNU as writes last. At a limit on the size of files
            it leaves such an object and reports no error.
    """
    path, ninja_file = os.path.join(job.folder, output), job.ninja_file
    if not os.path.exists(path):
        return None
    if job.request.build_directory:
        put_object(job.request.build_directory, path)
    with open(path, "rb") as file:
        if not file.read(4).strip(b"\0"):
            advice = "raise the limit on the size of files, for example with ulimit -f unlimited"
            raise OSError(errno.EFBIG, f"{output} was cut off: {advice}")
    source, depfile = ninja_file.compilations[output], path + ".d"
    if source.endswith(".s"):  # only the assembler runs, and it writes no depfile
        files = [source]
    else:
        files = read_depfile(depfile, job.folder)
        os.unlink(depfile)
        cache = os.path.join(cache_folder(), PRECOMPILED, "")
        files = [path for path in files if not path.startswith(cache)]
        files += in_header
    command = ninja_file.command(output)
    inputs = job.recorder.of_object(source, command, files, compilers.result()[output])
    record = {
        "command": command_key(job, output),
        "object": job.digests.digest(path),
        "seconds": _seconds(job.folder, output),
        "needs frontend": output in ninja_file.needs_frontend,
        **inputs,
    }
    write_checked(path + RECORD, record)
    return record


def all_records(job, plan, recordings, compilation):
    """Returns ({object: its record} of all objects, a warning about spilled registers or None).

    Objects that did not compile have none.
    recordings: {object: a future of record_object that has ended}.
    """
    recorded = {output: future.result() for output, future in recordings.items()}
    new = _remove_failed(job, recorded, compilation.failed_steps())
    warning = _record_kernels(job, new, compilation.lines_of)
    known = {**plan.reused, **new}  # in the order of the sources, as messages list them
    outputs = filter(known.get, job.ninja_file.compilations)
    return {output: known[output] for output in outputs}, warning


def _remove_failed(job, recorded, failed):
    """Returns the records of the objects that compiled, and deletes the other objects.

    failed: the steps whose last command failed; a compiler may have written their objects.
    """
    records = {output: record for output, record in recorded.items() if record is not None}
    for output in failed & records.keys():
        del records[output]
        os.unlink(os.path.join(job.folder, output))
        os.unlink(os.path.join(job.folder, output + RECORD))
    return records


def _record_kernels(job, records, lines_of):
    """Adds ptxas's figures and nvcc's command to the records of new CUDA objects.

    lines_of: {object: the lines that its compiler printed}.

    Returns a warning about spilled registers for the user, or None.
    """
    ninja_file = job.ninja_file
    if not any(map(ninja_file.is_cuda, records)):
        return None
    from _jit_loader.cuda import ptxas

    found = {}
    for output in filter(ninja_file.is_cuda, records):
        path = os.path.join(job.folder, output)
        source = job.request.roots.relative(ninja_file.compilations[output])
        found[source] = ptxas.kernels(lines_of.get(output, []))
        records[output].update(
            source=source,
            kernels=found[source],
            nvcc=list(map(job.request.roots.relative_text, ninja_file.command(output))),
        )
        write_checked(path + RECORD, records[output])
    return ptxas.spill_warning(job.request.title, found)


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
        **merged([*records, link]),
    }


def _seconds(folder, output):
    """Returns the seconds that a step took according to ninja's log; 0 if the log lacks it."""
    with contextlib.suppress(OSError), open(os.path.join(folder, ".ninja_log")) as file:
        for line in file:
            row = line.split("\t")  # start and end in ms, mtime, output, hash
            if len(row) > 3 and row[3] == output:
                return (int(row[1]) - int(row[0])) / 1000
    return 0
