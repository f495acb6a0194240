"""How a build is made: in a private folder, from objects that still fit, published in one rename."""

import concurrent.futures
import glob
import hashlib
import json
import os
import shutil
import tempfile
import time

from _jit_loader import closure, modules, toolchain
from _jit_loader.contents import stamp
from _jit_loader.display import BuildLine
from _jit_loader.errors import CompileError, compile_error
from _jit_loader.lock import build_lock
from _jit_loader.ninja_file import NinjaFile
from _jit_loader.ninja_run import ninja_path, run_ninja
from _jit_loader.objects import ObjectStore, write_record
from _jit_loader.store import Build, differences, read_checked, read_manifest, write_checked
from _jit_loader.torch_build import build_with_torch

ATTEMPTS = 3
# A file system's clock ticks every 4 ms or so: a change right after the start may look older.
CLOCK_TICK_NS = 10_000_000


class InputsChanged(Exception):
    """A file was written while it was compiled, so nobody can say what is in the object."""


def build(request, slot):
    """Builds what is asked for, or waits for who is building it. Returns (module, was compiled)."""
    check_tools(request)
    try:
        os.makedirs(slot.folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise _unwritable(slot.folder, error) from error
    failure_before = read_checked(_failure_path(slot))
    try:
        lock = build_lock(slot.folder, request.name)
        with lock as waited:
            found = slot.look()
            if found is not None:
                return modules.import_build(found, request.name), False
            if waited:
                _raise_shared_failure(slot, failure_before)
            _remove_leftovers(slot.folder)
            return _build_until_stable(request, slot), True
    except PermissionError as error:
        raise _unwritable(slot.folder, error) from error


def check_tools(request):
    """Raises a RuntimeError that says what to install where a needed tool is missing."""
    command = toolchain.cxx_command()
    if shutil.which(command[0]) is None:
        raise RuntimeError(
            f"{request.name} has to be compiled, and the C++ compiler {command[0]!r} was not found "
            "on PATH. Install g++ (Debian, Ubuntu: apt-get install g++), or name a compiler in "
            "the environment variable CXX"
        )
    if ninja_path() is None:
        raise RuntimeError(
            f"{request.name} has to be compiled, and ninja was not found. Run: pip install ninja"
        )
    if request.with_cuda and toolchain.nvcc_path() is None:
        raise RuntimeError(
            f"{request.name} has CUDA sources to compile: {toolchain.why_no_cuda()}"
        )
    for source in request.sources:
        if not os.path.isfile(source):
            raise FileNotFoundError(f"{request.name}: there is no source file {source}")


def _build_until_stable(request, slot):
    before = {}
    for _ in range(ATTEMPTS):
        attempt = Attempt(request, slot, before)
        try:
            return attempt.run()
        except InputsChanged as error:
            changed = error.args[0]
    raise RuntimeError(
        f"{request.name}: {', '.join(changed)} kept changing while being compiled; "
        "load it again when nothing writes there"
    )


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
        self.cuda_home = _cuda_home() if request.with_cuda else None
        self.line = None

    def run(self):
        request = self.request
        try:
            return build_with_torch(
                self,
                dict(
                    name=request.name,
                    sources=list(request.sources),
                    extra_cflags=list(request.extra_cflags),
                    extra_cuda_cflags=request.architecture_flags + request.extra_cuda_cflags,
                    extra_ldflags=request.extra_ldflags + self._cudart_flags(),
                    extra_include_paths=list(request.extra_include_paths),
                    build_directory=self.folder,
                    with_cuda=request.with_cuda,
                ),
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
            ninja_file = NinjaFile(file.read())
        store = ObjectStore(
            os.path.dirname(self.slot.folder),
            self.request.roots,
            self.programs,
            self.contents,
        )
        self.records, missing = self._reuse(ninja_file, store)
        expected = sum(seconds for seconds in missing.values())
        self.line = BuildLine(self.request.name, self._reason(), missing, expected)
        for source in self.request.sources:
            self.before[source] = self.contents.digest(source)
        started = time.time_ns()
        with open(path, "w") as file:
            file.write(ninja_file.without(kept=set(self.records)))
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as executor:
            facts = executor.submit(self._facts, ninja_file, list(missing))
            result = run_ninja(self.folder, self.line.finished)
            facts = facts.result()
        seconds = _seconds_per_output(self.folder)
        for output in missing:
            if os.path.exists(os.path.join(self.folder, output)):
                self._record(ninja_file, output, facts[output], started, seconds.get(output))
        if result.returncode != 0:
            self._fail(result.output)
        self._make_manifest(ninja_file, result.output)

    def import_library(self):
        """Loads the library as a test, publishes the build, and returns the module."""
        name, slot = self.request.name, self.slot
        build_key = _digest([self.request.key, self.manifest["files"], self.manifest["tools"]])
        private = Build(self.folder, name)
        try:
            module = modules.import_library(private.library, build_key, name)
        except ImportError as error:
            self._fail([f"ld: {error}"])
        published = Build(os.path.join(slot.folder, build_key), name)
        self._publish(published)
        modules.adopt(published, module)
        slot.remember(self.programs, build_key, self.manifest, self.contents)
        self.line.close_built()
        return module

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
                missing[output] = record["seconds"] or 0
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
        return {output: by_kind[ninja_file.is_cuda(output)] for output in outputs}

    def _record(self, ninja_file, output, facts, started, seconds):
        """Writes beside an object what it was made of; raises InputsChanged if nobody can say."""
        path = os.path.join(self.folder, output)
        source = ninja_file.compilations[output]
        files = closure.read_depfile(path + ".d", self.folder)
        os.unlink(path + ".d")
        own = [file for file in files if file == source or self._is_own(file)]
        self._check_unchanged(files, started)
        own_folders = list(dict.fromkeys(map(os.path.dirname, own)))
        record = {
            "command": self._command_key(ninja_file, output),
            "object": self.contents.digest(path),
            "seconds": seconds,
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
                if settled is None or settled[2] >= started - CLOCK_TICK_NS:
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
        for leftover in (".ninja_log", ".ninja_deps", "lock"):
            path = os.path.join(self.folder, leftover)
            if os.path.exists(path):
                os.unlink(path)
        for entry in os.scandir(self.folder):
            if entry.is_file():
                _sync(entry.path)
        _sync(self.folder)
        try:
            os.rename(self.folder, published.folder)
        except OSError:
            if read_manifest(published.folder) is None or not self._is_whole(published):
                # The folder is there and damaged; one rename puts it away, one ours in its place.
                os.rename(published.folder, tempfile.mkdtemp(prefix=".damaged-", dir=self.slot.folder))
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
        """Why it is built: what differs from the nearest of the last builds."""
        manifests = [manifest for _, manifest in self.slot.manifests()[:8]]
        if not manifests:
            return self._reason_for_a_new_slot()
        roots = self.request.roots
        changes = min(
            (differences(m, roots, self.programs, self.contents) for m in manifests), key=len
        )
        if not changes:
            return "the cached library was damaged"
        kind, path = changes[0]
        name = path.removeprefix("<project>/")
        text = {"new": f"{name} appeared", "compiler": f"the compiler {name} changed"}.get(
            kind, f"{name} {kind}"
        )
        return f"{text} and {len(changes) - 1} more" if len(changes) > 1 else text

    def _reason_for_a_new_slot(self):
        """What is asked for differently than in the last build of that name."""
        name_folder = os.path.dirname(self.slot.folder)
        manifests = [
            read_manifest(entry.path)
            for slot in os.scandir(name_folder)
            for entry in os.scandir(slot.path)
            if entry.is_dir()
        ]
        last = max(filter(None, manifests), key=lambda m: m["created"], default=None)
        if last is None:
            return "first build"
        old, new = last["request"], self.request.description
        return f"{', '.join(key for key in new if old.get(key) != new[key])} changed"

    def _cudart_flags(self):
        """The CUDA wheels from pip ship libcudart.so.13 without the name that -lcudart wants."""
        if self.cuda_home is None:
            return []
        folders = [os.path.join(self.cuda_home, lib) for lib in ("lib64", "lib")]
        if any(os.path.exists(os.path.join(folder, "libcudart.so")) for folder in folders):
            return []
        versions = [p for f in folders for p in glob.glob(os.path.join(f, "libcudart.so.*"))]
        if not versions:
            return []
        os.symlink(versions[0], os.path.join(self.folder, "libcudart.so"))
        return ["-L."]


def _cuda_home():
    """The CUDA Toolkit's folder: nvcc's own, asked of nvcc where its place does not show it."""
    nvcc = toolchain.nvcc_path()
    beside = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
    if os.path.exists(os.path.join(beside, "include", "cuda_runtime.h")):
        return beside
    return closure.nvcc_top(nvcc)


def _failure_path(slot):
    return os.path.join(slot.folder, "failed", "failure.json")


def _raise_shared_failure(slot, failure_before):
    """Raises the error of the build that this process has waited for, if it was of these files."""
    failure = read_checked(_failure_path(slot))
    if failure is None or failure == failure_before:
        return
    roots, contents = slot.request.roots, slot.contents()
    sources = failure["sources"].items()
    if all(contents.digest(roots.absolute(path)) == digest for path, digest in sources):
        raise CompileError(failure["message"])


def _remove_leftovers(slot_folder):
    """What killed builds left; the lock is ours, so nobody works there."""
    for pattern in (".building-*", ".damaged-*"):
        for folder in glob.glob(os.path.join(glob.escape(slot_folder), pattern)):
            shutil.rmtree(folder, ignore_errors=True)


def _seconds_per_output(folder):
    """From ninja's log: start and end in ms, mtime, output, hash of the command."""
    try:
        with open(os.path.join(folder, ".ninja_log")) as file:
            rows = [line.split("\t") for line in file if not line.startswith("#")]
    except OSError:
        return {}
    return {row[3]: (int(row[1]) - int(row[0])) / 1000 for row in rows if len(row) > 3}


def _merged(mappings):
    return {path: digest for mapping in mappings for path, digest in mapping.items()}


def _sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritable(folder, error):
    return PermissionError(
        f"the cache folder {folder} cannot be written ({error.strerror}); name another one in the "
        "environment variable JIT_LOADER_CACHE"
    )


def _digest(value):
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
