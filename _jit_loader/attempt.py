"""One run of compilers and linker: in a private folder, from the objects that still fit."""

import concurrent.futures
import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time

from _jit_loader import closure, libraries, loading, reasons, toolchain
from _jit_loader.cache import cache_folder, write_checked
from _jit_loader.checker import make_checker
from _jit_loader.display import BuildLine
from _jit_loader.errors import CompileError, compile_error
from _jit_loader.memo import stamp
from _jit_loader.ninja_file import NinjaFile
from _jit_loader.ninja_run import ninja_path, parallel_jobs, run_ninja
from _jit_loader.objects import ObjectStore, write_record
from _jit_loader.store import Build, read_manifest
from _jit_loader.torch_build import build_with_torch

CLOCK_TICK_LIMIT_SECONDS = 0.1


class InputsChanged(Exception):
    """A file was written while it was compiled, so nobody can say what is in the object."""


class Attempt:
    """One run of compilers and linker in a private folder.

    before: {path: digest} of files that were read before any compiler started; filled here, and
    carried from an attempt to the next.
    """

    def __init__(self, request, slot, before):
        self.request, self.slot, self.before = request, slot, before
        self.contents = slot.contents()
        self.programs = toolchain.programs(request.with_cuda)
        self.folder = tempfile.mkdtemp(prefix=".building-", dir=slot.folder)
        self.made = _file_system_time(self.folder)
        self.cuda_home = libraries.cuda_home() if request.with_cuda else None
        self.line = None

    def run(self):
        request = self.request
        try:
            return build_with_torch(
                self,
                {
                    "name": request.name,
                    "sources": list(request.sources),
                    "extra_cflags": list(request.extra_cflags),
                    "extra_cuda_cflags": request.architecture_flags + request.extra_cuda_cflags,
                    "extra_ldflags": request.extra_ldflags
                    + libraries.link_flags(self.cuda_home, self.folder),
                    "extra_include_paths": list(request.extra_include_paths),
                    "build_directory": self.folder,
                    "with_cuda": request.with_cuda,
                },
            )
        except CompileError as error:
            failed = self._failed_folder()
            shutil.rmtree(failed, ignore_errors=True)
            os.rename(self.folder, failed)
            # What lies between is PyTorch's and ours; the error is in the user's source.
            raise error.with_traceback(None) from None
        finally:
            if self.line is not None:
                self.line.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    # The two steps that PyTorch's load calls.

    def run_ninja(self):
        """Compiles what changed, links, and records what each object was made of."""
        path = os.path.join(self.folder, "build.ninja")
        with open(path) as file:
            ninja_file = NinjaFile(file.read(), self.request.source_flags)
        store = ObjectStore(
            os.path.dirname(self.slot.folder),
            self.request.roots,
            self.programs,
            self.contents,
        )
        self.records, missing = self._reuse(ninja_file, store)
        expected = sum(missing.values()) / min(parallel_jobs(), max(len(missing), 1))
        expected = max([expected, *missing.values()])
        self.line = BuildLine(self.request.name, self._reason(), missing, expected)
        for source in self.request.sources:
            self.before[source] = self.contents.digest(source)
        started = self._next_tick()
        with open(path, "w") as file:
            file.write(ninja_file.without(kept=set(self.records)))
        with concurrent.futures.ThreadPoolExecutor() as executor:
            facts = executor.submit(self._facts, ninja_file, list(missing))
            recordings = []
            executor.submit(make_checker, cache_folder())

            def on_finished(output):
                # What takes longest is behind: the linker works meanwhile.
                self.line.finished(output)
                if output in missing:
                    recordings.append(
                        executor.submit(self._record, ninja_file, output, facts, started)
                    )

            result = run_ninja(self.folder, on_finished)
        for recording in recordings:
            recording.result()
        if result.returncode != 0:
            self._fail(result.output)
        self._make_manifest(ninja_file, result.output)

    def import_library(self):
        """Loads the library as a test, publishes the build, and returns the module."""
        name, slot = self.request.name, self.slot
        build_key = _digest([self.request.key, self.manifest["files"], self.manifest["tools"]])
        private = Build(self.folder, name)
        try:
            module = loading.import_library(private.library, build_key, name)
        except ImportError as error:
            self._fail([f"ld: {error}"])
        published = Build(os.path.join(slot.folder, build_key), name)
        self._publish(published)
        loading.adopt(published, module)
        slot.remember(self.programs, build_key, self.manifest, self.contents)
        self.line.close_built()
        return module

    def _next_tick(self):
        """A time of the file system's clock that no change made before now can bear.

        The clock ticks every 4 ms as a rule, and has ticked since the folder was made.
        """
        deadline = time.monotonic() + CLOCK_TICK_LIMIT_SECONDS
        while (now := _file_system_time(self.folder)) <= self.made:
            if time.monotonic() > deadline:
                break
            time.sleep(0.001)
        return now

    def _reuse(self, ninja_file, store):
        """({object: record} of those that still fit, {object: expected seconds} of the others)."""
        records, missing = {}, {}
        for output in ninja_file.compilations:
            known = store.newest(output)
            key = self._command_key(ninja_file, output)
            record = store.take(output, key, self.folder, known)
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

    def _command_key(self, ninja_file, output):
        words = [self.request.roots.relative_text(word) for word in ninja_file.command(output)]
        return _digest([words, self.request.description["environment variables"]])

    def _facts(self, ninja_file, outputs):
        """{object: CompilerFacts}, asked while the compilers run; once for each kind of source."""
        by_kind = {}
        for output in outputs:
            is_cuda = ninja_file.is_cuda(output)
            if is_cuda not in by_kind:
                command = ninja_file.command(output)
                by_kind[is_cuda] = (
                    closure.nvcc_facts(command, ninja_file.cxx_words())
                    if is_cuda
                    else closure.cxx_facts(command)
                )
                for tool in by_kind[is_cuda].tools:
                    self.contents.digest(tool)  # 0.8 s for nvcc's programs, the first time
        return {output: by_kind[ninja_file.is_cuda(output)] for output in outputs}

    def _record(self, ninja_file, output, facts, started):
        """Writes beside an object what it was made of; raises InputsChanged if nobody can say."""
        path = os.path.join(self.folder, output)
        if not os.path.exists(path):
            return  # it did not compile
        facts = facts.result()[output]
        source = ninja_file.compilations[output]
        files = closure.read_depfile(path + ".d", self.folder)
        os.unlink(path + ".d")
        own = [file for file in files if file == source or self._is_own(file)]
        self._check_unchanged(files, started)
        own_folders = list(dict.fromkeys(map(os.path.dirname, own)))
        record = {
            "command": self._command_key(ninja_file, output),
            "object": self.contents.digest(path),
            "seconds": _seconds(self.folder, output),
            **self._inputs(files, facts.tools, own),
            "absent": self._relative_keys(
                closure.shadows(files, own_folders, facts.search_folders)
            ),
        }
        write_record(path, record)
        self.records[output] = record

    def _inputs(self, files, tools, own):
        relative = self.request.roots.relative
        digest = self.contents.digest
        return {
            "files": {relative(file): digest(file) for file in files},
            "own": [relative(file) for file in own],
            "tools": {relative(tool): digest(tool) for tool in tools},
            "programs": {role: digest(path) for role, path in self.programs.items()},
        }

    def _relative_keys(self, by_folder):
        relative = self.request.roots.relative
        return {relative(folder): names for folder, names in by_folder.items()}

    def _is_own(self, path):
        """Whether a file is the user's: without it, nothing can be built or trusted."""
        if self.request.roots.relative(path).startswith("<project>"):
            return True
        return any(path.startswith(p + os.sep) for p in self.request.extra_include_paths)

    def _check_unchanged(self, files, started):
        changed = []
        for path in files:
            after = self.contents.digest(path)
            before = self.before.setdefault(path, None)
            if before is None:
                settled = stamp(path)
                if settled is None or settled[2] >= started:
                    changed.append(path)
            elif before != after:
                changed.append(path)
            self.before[path] = after
        if changed:
            raise InputsChanged(changed)

    def _make_manifest(self, ninja_file, output):
        library = ninja_file.library
        linked = closure.linked_files(output, self.folder)
        own = [path for path in linked if self._is_own(path)]
        link = {
            **self._inputs(linked, [], own),
            "absent": self._relative_keys(
                closure.library_shadows(linked, ninja_file.command(library))
            ),
        }
        parts = [*self.records.values(), link]
        absent = {}
        for part in parts:
            for folder, names in part["absent"].items():
                absent.setdefault(folder, set()).update(names)
        self.manifest = {
            "name": self.request.name,
            "created": time.time(),
            "request": self.request.description,
            "library": self.contents.digest(os.path.join(self.folder, library)),
            "files": _merged(part["files"] for part in parts),
            "own": sorted({path for part in parts for path in part["own"]}),
            "tools": _merged(part["tools"] for part in parts),
            "programs": link["programs"],
            "absent": {folder: sorted(names) for folder, names in sorted(absent.items())},
        }

    def _publish(self, published):
        write_checked(os.path.join(self.folder, "manifest.json"), self.manifest)
        for leftover in (".ninja_log", ".ninja_deps", "lock", "clock"):
            path = os.path.join(self.folder, leftover)
            if os.path.exists(path):
                os.unlink(path)
        for entry in os.scandir(self.folder):
            if entry.is_file() and entry.stat().st_nlink == 1:  # the others were published before
                _sync(entry.path)
        _sync(self.folder)
        try:
            os.rename(self.folder, published.folder)
        except OSError:
            if read_manifest(published.folder) is None or not self._is_whole(published):
                # The folder is there and damaged; one rename puts it away, one ours in its place.
                os.rename(
                    published.folder, tempfile.mkdtemp(prefix=".damaged-", dir=self.slot.folder)
                )
                os.rename(self.folder, published.folder)
        _sync(self.slot.folder)

    def _is_whole(self, build):
        return self.contents.digest(build.library) == read_manifest(build.folder)["library"]

    def _fail(self, output):
        """Raises the CompileError, with a log and a note for those who wait for this build."""
        error = compile_error(
            self.request.name, output, self._failed_folder(), self.request.project, ninja_path()
        )
        with open(os.path.join(self.folder, "log"), "w", errors="surrogateescape") as file:
            file.write("\n".join(output) + "\n")
        relative = self.request.roots.relative
        sources = {relative(path): digest for path, digest in self.before.items()}
        write_checked(
            os.path.join(self.folder, "failure.json"),
            {"message": str(error), "time": time.time(), "sources": sources},
        )
        raise error

    def _failed_folder(self):
        """Where a failed build is kept: its objects are as good as any, and it can be run again."""
        return os.path.join(self.slot.folder, "failed")

    def _reason(self):
        return reasons.why_built(self.slot, self.programs, self.contents)


def _file_system_time(folder):
    path = os.path.join(folder, "clock")
    with open(path, "w"):
        pass
    os.utime(path)
    return os.stat(path).st_ctime_ns


def _seconds(folder, output):
    """From ninja's log, with rows of start and end in ms, mtime, output, hash of the command."""
    with contextlib.suppress(OSError), open(os.path.join(folder, ".ninja_log")) as file:
        for line in file:
            row = line.split("\t")
            if len(row) > 3 and row[3] == output:
                return (int(row[1]) - int(row[0])) / 1000
    return 0


def _merged(mappings):
    return {path: digest for mapping in mappings for path, digest in mapping.items()}


def _sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(value):
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
