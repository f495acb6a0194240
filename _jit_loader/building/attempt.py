"""One run of compilers and linker: in a private folder, from the objects that still fit."""

import concurrent.futures
import contextlib
import os
import re
import shlex
import shutil
import socket
import tempfile
import time

from _jit_loader import hit, toolchain
from _jit_loader.building import closure, ptxas, reasons
from _jit_loader.building.checker import make_checker
from _jit_loader.building.compile_commands import update_compile_commands
from _jit_loader.building.display import BuildLine, printable, say
from _jit_loader.building.errors import (
    LOAD_ERRORS,
    CompileError,
    LoadError,
    compile_error,
    named_files,
)
from _jit_loader.building.flags import (
    cuda_home,
    is_gnu,
    link_flags,
    openmp_flags,
    own_statics_flags,
)
from _jit_loader.building.inputs import Clock, Inputs, InputsChanged, merged
from _jit_loader.building.jobs import parallel_jobs
from _jit_loader.building.ninja_file import NinjaFile
from _jit_loader.building.ninja_run import ninja_path, run_ninja
from _jit_loader.building.objects import ObjectStore, write_record
from _jit_loader.building.publishing import publish
from _jit_loader.building.recipe import Recipe
from _jit_loader.building.shared_failure import write_failure
from _jit_loader.building.stand_ins import make_stand_ins
from _jit_loader.building.stubs import Stubs, find_stubs, make_stubs
from _jit_loader.building.torch_build import build_with_torch
from _jit_loader.hit import cache_folder, digest_of
from _jit_loader.pruning import FAILED
from _jit_loader.store import Build


class Attempt:
    """One run of compilers and linker in a private folder.

    before: {path: digest} of files that were read before any compiler started; filled here, and
    carried from an attempt to the next. careful: whether all that went into old objects is looked
    at before the compilers start; else what is not the user's own is looked at while they work.
    """

    def __init__(self, request, slot, before, careful, verbose):
        self.request, self.slot, self.before = request, slot, before
        self.contents = slot.contents()
        self.programs = toolchain.programs(request.with_cuda)
        self.folder = tempfile.mkdtemp(prefix=private_prefix(), dir=slot.folder)
        self.clock = Clock(self.folder)
        self.inputs = Inputs(request, self.contents, self.programs, before, self.clock, careful)
        self.cuda_home = cuda_home() if request.with_cuda else None
        self.line = None
        self.warning = None
        self.careful, self.verbose = careful, verbose
        self.published = None  # the Build, once there is one
        self.keeps_objects = False  # where it fails

    def run(self):
        try:
            with concurrent.futures.ThreadPoolExecutor() as self.executor:
                return self._run()
        except CompileError as error:
            self.keeps_objects = True
            # What lies between is PyTorch's and ours; the error is in the user's source.
            raise error.with_traceback(None) from None
        except OSError as error:
            if os.path.isdir(self.folder):
                raise
            raise InputsChanged([self.folder]) from error  # somebody has deleted the cache
        except KeyboardInterrupt as interrupt:
            raise interrupt.with_traceback(None) from None
        finally:
            if self.line is not None:
                self.line.close()
            if self.keeps_objects:
                self._keep()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self):
        self.stubs_found = self.executor.submit(self._find_stubs)
        load_arguments = self._load_arguments()
        self.recipe = Recipe(self.slot.folder, load_arguments, self.cuda_home, self.contents)
        text = self.recipe.read()
        if text is None:
            return build_with_torch(self, load_arguments)
        self._run_ninja(text)
        return self.open_library()

    def _find_stubs(self):
        """The cache's stubs; in a new cache they are made while other things are done."""
        cache, with_cuda = cache_folder(), self.request.with_cuda
        found = find_stubs(cache, with_cuda)
        if found is None:
            self.stubs_made = self.executor.submit(make_stubs, cache, with_cuda)
        return found

    def _load_arguments(self):
        """What PyTorch's load is called with."""
        request = self.request
        gnu = is_gnu(toolchain.cxx_command())
        is_opened = request.form != "executable"
        self.stand_ins = make_stand_ins(request.sources, self.folder)
        arguments = {
            "name": request.name,
            "sources": self.stand_ins,
            "extra_cflags": own_statics_flags(gnu),
            "extra_cuda_cflags": list(request.architecture_flags),
            "extra_ldflags": [
                # A hit binds a function when it is called, and the library that a flag names may
                # lack one by then: as with PyTorch's load, that is an ImportError.
                *(["-Wl,-z,now"] if request.extra_ldflags and is_opened else []),
                *request.extra_ldflags,
                *link_flags(self.cuda_home, self.folder),
            ],
            "extra_include_paths": [p.replace("$", "$$") for p in request.extra_include_paths],
            "build_directory": self.folder,
            "with_cuda": request.with_cuda,
            "is_python_module": request.form == "module",
            "is_standalone": request.form == "executable",
        }
        arguments["extra_cflags"] += request.extra_cflags
        arguments["extra_ldflags"] += openmp_flags(gnu, request.extra_cflags)
        if request.with_cuda:
            host_flags = own_statics_flags(is_gnu(toolchain.host_command()), "-Xcompiler=")
            arguments["extra_cuda_cflags"] += host_flags + request.extra_cuda_cflags
        return arguments

    # The two steps that PyTorch's load calls.

    def run_ninja(self):
        with open(os.path.join(self.folder, "build.ninja")) as file:
            text = file.read()
        self.recipe.keep(text)
        self._run_ninja(text)

    def open_library(self):
        """Opens the library as a test, publishes the build, and returns what was opened."""
        name, slot = self.request.name, self.slot
        parts = ("files", "tools", "programs", "absent")
        build_key = digest_of([self.request.key, *(self.manifest[part] for part in parts)])
        private = Build(self.folder, self.request)
        try:
            opened = hit.open_library(private.library, build_key, name, self.request.form)
        except LoadError:
            raise  # what this process has loaded before is in the way, and in no other's
        except Exception as error:
            theirs, ours = LOAD_ERRORS[self.request.form]
            if isinstance(error, theirs):
                # PyTorch's OSError names the library only.
                self._fail([f"error: cannot be loaded: {error.__cause__ or error}"], ours)
            self.keeps_objects = True  # they are good: it is the module that raises this
            raise
        self.published = Build(os.path.join(slot.folder, build_key), self.request)
        # Before another thread can find it, which would open it a second time.
        opened = hit.adopt(self.published.library, opened)
        publish(self.folder, self.manifest, self.published, self.contents)
        slot.remember(self.programs, self.published, self.manifest, self.contents)
        self.line.close_built()
        if self.warning is not None:
            say(self.warning)
        return opened

    def _run_ninja(self, text):
        """Compiles what changed, links, and records what each object was made of.

        text: of build.ninja as PyTorch writes it.
        """
        ninja_file = NinjaFile(text, self.request.sources, self.request.source_flags)
        for stand_in in self.stand_ins:
            os.unlink(stand_in)
        store = ObjectStore(
            os.path.dirname(self.slot.folder),
            self.request.roots,
            self.programs,
            self.contents,
        )
        self.records, missing = self._reuse(ninja_file, store)
        for source in self.request.sources:
            self.before[source] = self.contents.digest(source)
        if self.verbose:
            for output in [*missing, ninja_file.library]:
                print(printable(shlex.join(ninja_file.command(output))), flush=True)
        stubs = Stubs(ninja_file.link_flags, self.request.extra_ldflags, self.folder)
        found = self.stubs_found.result()
        stubs.take(found)
        self.clock.start()
        self._write_ninja_file(ninja_file.without(set(self.records), stubs.flags))
        ask = self.inputs.ask_compilers
        facts = self.executor.submit(ask, ninja_file, list(missing))
        # What is published next is this folder, with the checker's path.
        beside = [
            self.executor.submit(make_checker, cache_folder()),
            self.executor.submit(update_compile_commands, self.request, ninja_file, self.folder),
        ]
        if found is None:
            beside.append(self.executor.submit(lambda: stubs.take(self.stubs_made.result())))
        recordings = []

        def on_started():
            # None of it takes time that the compilers do not take anyway.
            if not self.careful:
                self._check_reused(store)
            self._start_line(missing)

        def on_finished(output):
            # What takes longest is behind: the linker works meanwhile.
            self.line.finished(output)
            if output in missing:
                recordings.append(self.executor.submit(self._record, ninja_file, output, facts))

        result = run_ninja(self.folder, on_started, on_finished, self.verbose)
        concurrent.futures.wait(beside)
        for recording in recordings:
            recording.result()
        self._record_kernels(ninja_file, missing, result.said)
        is_compiled = set(self.records) == set(ninja_file.compilations)
        if result.returncode != 0 and is_compiled and stubs.flags is not None:
            # A linker that wants every symbol; or an error, which then names no stub.
            self._write_ninja_file(ninja_file.without(set(self.records)))
            result = run_ninja(self.folder, lambda: None, self.line.finished, self.verbose)
        if result.returncode != 0:
            self._fail([line for line in result.output if not ptxas.is_report(line)])
        linked = closure.linked_files(map(stubs.traced, result.output), self.folder)
        parts = [*self.records.values(), self.inputs.of_link(ninja_file, linked)]
        self.manifest = {
            "name": self.request.name,
            "created": time.time(),
            "request": self.request.description,
            "library": self.contents.digest(os.path.join(self.folder, ninja_file.library)),
            **merged(parts),
        }

    def _write_ninja_file(self, text):
        path = os.path.join(self.folder, "build.ninja")
        with open(path, "w", errors="surrogateescape") as file:
            file.write(text)

    def _reuse(self, ninja_file, store):
        """({object: record} of what may still fit, {object: expected seconds} of the others)."""
        records, missing = {}, {}
        for output in ninja_file.compilations:
            known = store.newest(output)
            key = self._command_key(ninja_file, output)
            record = store.take(output, key, self.folder, known, self.careful)
            if record is not None:
                records[output] = record
                continue
            missing[output] = 0
            if known:
                record = known[0][1]
                missing[output] = record["seconds"]
                for path in map(self.request.roots.absolute, record["files"]):
                    self.before[path] = self.contents.digest(path)
        return records, missing

    def _check_reused(self, store):
        """Raises InputsChanged where an object does not fit that seemed to, by the user's files."""
        for output, record in self.records.items():
            path = os.path.join(self.folder, output)
            if not store.still_fits(record, path):
                raise InputsChanged([path])

    def _start_line(self, missing):
        """missing: {object: expected seconds}"""
        expected = sum(missing.values()) / min(parallel_jobs(), max(len(missing), 1))
        expected = max([expected, *missing.values()])
        reason = reasons.why_built(self.slot, self.programs, self.contents)
        self.line = BuildLine(self.request.title, reason, missing, expected)

    def _command_key(self, ninja_file, output):
        words = [self.request.roots.relative_text(word) for word in ninja_file.command(output)]
        return digest_of([words, self.request.description["environment variables"]])

    def _record(self, ninja_file, output, facts):
        """Writes beside an object what it was made of; raises InputsChanged if nobody can say."""
        path = os.path.join(self.folder, output)
        if not os.path.exists(path):
            return  # it did not compile
        source, depfile = ninja_file.compilations[output], path + ".d"
        if source.endswith(".s"):  # the assembler alone makes the object, and writes no depfile
            files = [source]
        else:
            files = closure.read_depfile(depfile, self.folder)
            os.unlink(depfile)
        record = {
            "command": self._command_key(ninja_file, output),
            "object": self.contents.digest(path),
            "seconds": _seconds(self.folder, output),
            **self.inputs.of_object(ninja_file, output, files, facts.result()[output]),
        }
        write_record(path, record)
        self.records[output] = record

    def _record_kernels(self, ninja_file, compiled, said):
        """Adds what their kernels use to the records of the objects that nvcc has made."""
        found = {}
        for output in filter(ninja_file.is_cuda, compiled):
            if output in self.records:
                source = self.request.roots.relative(ninja_file.compilations[output])
                found[source] = ptxas.kernels(said.get(output, []))
                self.records[output].update(source=source, kernels=found[source])
                write_record(os.path.join(self.folder, output), self.records[output])
        self.warning = ptxas.spill_warning(self.request.title, found)

    def _fail(self, output, kind=CompileError):
        """Raises the CompileError, with a log and a note for those who wait for this build."""
        named = named_files(output)
        self.inputs.check_failed(named)
        if not named:
            self.recipe.forget()
        absolute = self.request.roots.absolute
        own = [absolute(path) for record in self.records.values() for path in record["own"]]
        error = compile_error(
            self.request.title,
            output,
            self._failed_folder(),
            self.request.project,
            ninja_path(),
            list(dict.fromkeys([*self.request.sources, *own])),
        )
        with open(os.path.join(self.folder, "log"), "w", errors="surrogateescape") as file:
            file.write("\n".join(output) + "\n")
        relative = self.request.roots.relative
        sources = {relative(path): digest for path, digest in self.before.items()}
        error = kind(*error.args)
        write_failure(self.folder, error, sources, self.clock.started)
        raise error

    def _keep(self):
        failed = self._failed_folder()
        shutil.rmtree(failed, ignore_errors=True)
        with contextlib.suppress(OSError):  # another has put its own there
            os.rename(self.folder, failed)

    def _failed_folder(self):
        """Where a failed build is kept: its objects are as good as any, and it can be run again."""
        return os.path.join(self.slot.folder, FAILED)


def private_prefix():
    """What the names of private folders begin with on this machine."""
    return f".building-{re.sub('[^A-Za-z0-9_.]', '_', socket.gethostname())}-"


def _seconds(folder, output):
    """From ninja's log, with rows of start and end in ms, mtime, output, hash of the command."""
    with contextlib.suppress(OSError), open(os.path.join(folder, ".ninja_log")) as file:
        for line in file:
            row = line.split("\t")
            if len(row) > 3 and row[3] == output:
                return (int(row[1]) - int(row[0])) / 1000
    return 0
