"""The loop of watch mode: it forks a child that runs the script, and waits for a save.

Files finds the code files of the script's project, and waits for their saves. Watch forks a child
after each; run_as_main runs the script in the child.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import runpy
import signal
import subprocess
import sys
import tempfile
import time

from watchfiles import DefaultFilter, watch

from _jit_loader import this_process
from _jit_loader.cache import is_in_a_cache
from _jit_loader.cuda.nvrtc import load_library
from _jit_loader.key import gpus
from _jit_loader.key.digests import Digests
from _jit_loader.key.roots import find_project
from _jit_loader.live import load
from _jit_loader.live.program import KEEP, precompile
from _jit_loader.ops.project import project_above
from _jit_loader.report.text import say
from _jit_loader.system import processes

IMPORTED = ("torch", "numpy.random", "jit_loader")  # the modules of a build take 0.2 s
TOLD_BYTES = 1 << 24

# A run may save its work when it is terminated, and when it is interrupted by Ctrl-C.
GRACE_SECONDS = 2
INTERRUPT_SECONDS = 10
POLL_SECONDS = 0.005
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

CODE = (
    *(".py", ".c", ".cc", ".cpp", ".cxx", ".cu"),
    *(".h", ".hh", ".hpp", ".hxx", ".cuh", ".inc", ".inl"),
)
IGNORED_FOLDERS = {*DefaultFilter.ignore_dirs, "build", "dist"}
FOLDERS_LIMIT = 1000  # a script may lie in a home folder; the nearest folders are watched

# An editor may write, rename and delete for one save: events within STEP_MS are one save.
STEP_MS = 10
WAKE_SECONDS = 0.1
LOOKS = 10  # some file systems have no events, and no save during a fork has one


class Files:
    """The script and the code files of its project, as they were at the last look."""

    def __init__(self, script):
        self._script = os.path.realpath(script)
        self._folder = os.path.dirname(self._script)
        self._root = project_above(self._folder) or find_project([self._script])
        self._digests, self._known = Digests(), {}
        self._polls = None  # watchfiles decides
        self.saved(is_running=True)

    def saved(self, is_running):
        """Returns the files whose content has changed since the last call.

        is_running: whether a run is active. A new file is then its own, such as a log of code.
        """
        paths = {self._script, *_walk(self._root)[1]}
        now = {path: self._digests.digest(path) for path in paths}
        now = {path: digest for path, digest in now.items() if digest is not None}
        before = {**now, **self._known} if is_running else self._known
        self._known = {**self._known, **now}
        return {path for path, digest in now.items() if digest != before.get(path)}

    def wake_ups(self):
        """Yields, several times a second, whether files may have changed: at a save, or by then."""
        while True:
            try:
                for number, changes in enumerate(self._watch(), 1):
                    yield bool(changes) or number % LOOKS == 0
            except FileNotFoundError:
                yield True  # a folder was removed before it was watched
            except (OSError, RuntimeError) as error:
                if self._polls:
                    raise
                self._polls = True
                say(
                    f"watch: the system does not report saves ({error}), so the files are polled; "
                    "sudo sysctl fs.inotify.max_user_watches=524288 allows more watches"
                )

    def _watch(self):
        folders = {self._folder, *_walk(self._root)[0]}
        return watch(
            *folders,
            watch_filter=None,
            step=STEP_MS,
            rust_timeout=int(1000 * WAKE_SECONDS),
            force_polling=self._polls,
            yield_on_timeout=True,
            recursive=False,
        )


def _walk(root):
    """Returns (folders, code files) of a project, breadth first."""
    folders, files = [root], []
    for folder in folders:  # it grows meanwhile
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(CODE):
                    files.append(entry.path)
                elif len(folders) < FOLDERS_LIMIT and _may_hold_code(entry):
                    folders.append(entry.path)
    return folders, files


def _may_hold_code(entry):
    return (
        not entry.name.startswith(".")
        and entry.name not in IGNORED_FOLDERS
        and entry.is_dir(follow_symlinks=False)
        and os.access(entry.path, os.R_OK | os.X_OK)
        and not is_in_a_cache(os.path.join(entry.path, "file"))
    )


class Watch:
    """Forks a child that runs a script, and another one after each save; ends the previous one."""

    def __init__(self, script):
        self._name = os.path.basename(script)
        self._files = Files(script)
        self._pid = None  # of the run, until it has ended
        self._older = {*processes.tree(os.getpid())}  # from before an exec
        self._told, self._last_told = tempfile.TemporaryFile(), b""  # noqa: SIM115

    def fork_at_each_save(self):
        """Returns in each child. In this process it ends with an error or by Ctrl-C."""
        for name in IMPORTED:
            importlib.import_module(name)
        if gpus():
            with contextlib.suppress(ImportError, RuntimeError):  # few scripts need them
                load_library()  # NVRTC takes 0.02 s
                importlib.import_module("triton.testing")  # for measure: it takes 0.3 s
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # all it starts can be ended
        try:
            while True:
                gc.collect()
                gc.freeze()  # a child's collector then copies no memory
                self._started = time.monotonic()
                self._pid = os.fork()
                if self._pid == 0:
                    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                    this_process.after_load.append(self._tell)
                    return
                saved = self._wait_for_a_save()
                self._end_all()
                say(f"{self._name}: {', '.join(map(os.path.relpath, sorted(saved)))} saved")
        except BaseException as error:
            self._end(error)
            raise

    def _wait_for_a_save(self):
        """Waits for saves that start a run, and says when this one has ended; returns the files."""
        for files_may_have_changed in self._files.wake_ups():
            code, saved = self._reap(), None
            # A look before its end is known: files that it has created are its own.
            if files_may_have_changed or code is not None:
                saved = self._files.saved(is_running=self._pid is not None or code is not None)
            if code is not None:
                self._say_end(code)
            if saved:
                return saved
            self._precompile()

    def _tell(self, *_):
        """Tells the parent, in a child, of which headers it has no precompiled ones."""
        programs = [code.program for op in [*load.ops.values()] for code in op.codes]
        with contextlib.suppress(OSError):  # the script has closed the file
            for program in filter(lambda program: KEEP in program.options, programs):
                os.pwrite(self._told.fileno(), pickle.dumps(program), 0)

    def _precompile(self):
        """Precompiles headers that took the run seconds, for the next runs."""
        if (told := os.pread(self._told.fileno(), TOLD_BYTES, 0)) != self._last_told:
            self._last_told = told
            with contextlib.suppress(Exception):  # the run is still writing, or NVRTC cannot
                precompile(pickle.loads(told))

    def _reap(self):
        """Reaps ended children. Returns the run's exit code, or minus its signal, if it ended."""
        code = None
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._pid:
                    self._pid, code = None, os.waitstatus_to_exitcode(ended[1])
        return code

    def _say_end(self, code):
        _restore_terminal()
        how = f"exit code {code}"
        if code < 0:
            how = f"ended by signal {-code} ({signal.strsignal(-code)})"
        seconds = time.monotonic() - self._started
        say(f"{self._name}: {how} after {seconds:.1f} s; waiting for a save")

    def _end(self, error):
        """Ends all processes. After Ctrl-C, the run first has time to end by itself."""
        try:
            if isinstance(error, KeyboardInterrupt) and self._pid is not None:
                say(f"{self._name}: has {INTERRUPT_SECONDS} s to end; press Ctrl-C to end it now")
                self._wait_for_the_run(INTERRUPT_SECONDS)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._end_all()

    def _end_all(self):
        """Ends the run, and then all processes that it has started."""
        if self._pid is not None:
            processes.kill([self._pid], signal.SIGTERM)
            self._wait_for_the_run(GRACE_SECONDS)
        while left := {*processes.tree(os.getpid())} - self._older:
            processes.kill(left)
            time.sleep(POLL_SECONDS)
            self._reap()
        _restore_terminal()

    def _wait_for_the_run(self, seconds):
        limit = time.monotonic() + seconds
        while self._pid is not None and time.monotonic() < limit:
            time.sleep(POLL_SECONDS)
            self._reap()


def _restore_terminal():
    """Restores settings such as echo: a killed run leaves its own."""
    # The system stops a background process that writes to its terminal.
    with contextlib.suppress(OSError):  # there is no terminal
        if os.tcgetpgrp(0) == os.getpgrp():
            subprocess.run(["stty", "sane", "iutf8"])


def run_as_main(script, arguments):
    """Runs a script as `python script.py` does; raises SystemExit if it ends with an error."""
    _forget_the_parent()
    path = os.path.abspath(script)
    sys.argv = [path, *arguments]
    sys.path[0] = os.path.dirname(os.path.realpath(script))
    try:
        runpy.run_path(path, run_name="__main__")
    except (Exception, KeyboardInterrupt) as error:
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename != path:
            frames = frames.tb_next  # the loader's and runpy's
        sys.excepthook(type(error), error.with_traceback(frames), frames)
        raise SystemExit(130 if isinstance(error, KeyboardInterrupt) else 1) from None


def _forget_the_parent():
    """Resets the state that forks of one process share and new processes do not."""
    importlib.invalidate_caches()
    # Python identifies bytecode by the source's size and time in whole seconds. Of two saves with
    # the same size within a second, it would run the first.
    sys.dont_write_bytecode = True
    sys.modules["numpy.random"].seed()
    sys.modules["torch"].default_generator.seed()
