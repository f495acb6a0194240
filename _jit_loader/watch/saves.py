"""Reports saves from a separate process: threads of watchfiles would not survive a fork."""

import contextlib
import multiprocessing.connection
import os
import signal
import threading

# An editor may write, rename and delete for one save: events within STEP_MS are one save.
STEP_MS = 10
DEBOUNCE_MS = 200  # the limit, if something writes all the time

# Folders without code, in addition to those that watchfiles knows (.git, node_modules, ...).
OTHER_FOLDERS = ("build", "dist")
FOLDERS_LIMIT = 5000  # each takes an inotify watch; older systems allow a user 8192


class Saves:
    """The process that watches folders and reports saves.

    pid: the id of the process. messages: the Connection that is readable after a save.
    """

    def __init__(self):
        requests, self._to_process = multiprocessing.connection.Pipe(duplex=False)
        self.messages, to_report = multiprocessing.connection.Pipe(duplex=False)
        self._watched = set()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._to_process.close()
                _report_saves(requests, to_report)
            finally:
                os._exit(0)
        requests.close()
        to_report.close()

    def watch(self, folders):
        """Watches more folders, without their subfolders."""
        new = {folder for folder in folders if os.path.isdir(folder)} - self._watched
        if new:
            self._watched |= new
            self._to_process.send((sorted(new), False))

    def watch_below(self, root):
        """Watches a project's folder and its subfolders, including those created later."""
        self._to_process.send(([root], True))

    def leave(self):
        """Closes the connections in a child: the process ends when they are closed everywhere."""
        self._to_process.close()
        self.messages.close()

    def paths(self):
        """Returns the files that were created, changed or removed since the last call.

        Raises:
            RuntimeError: files can no longer be watched.
        """
        paths = []
        while self.messages.poll():
            try:
                message = self.messages.recv()
            except EOFError:
                raise RuntimeError("the process that watches the files has ended") from None
            if isinstance(message, str):
                raise RuntimeError(f"files cannot be watched: {message}")
            paths += message
        # A removed or renamed folder is no longer watched, even if it is created again.
        self._watched.difference_update(path for path in paths if not os.path.isdir(path))
        return paths


def folders_below(root):
    """Yields the folders of a project that may hold code, the root first."""
    from watchfiles import DefaultFilter

    ignored = {*DefaultFilter.ignore_dirs, *OTHER_FOLDERS}
    level, count = [root], 0
    while level:
        below = []
        for folder in level:
            count += 1
            if count > FOLDERS_LIMIT:
                return
            yield folder
            with contextlib.suppress(OSError):
                below += [
                    entry.path
                    for entry in os.scandir(folder)
                    if entry.is_dir(follow_symlinks=False)
                    and not entry.name.startswith(".")
                    and entry.name not in ignored
                    and not os.path.exists(os.path.join(entry.path, "pyvenv.cfg"))
                ]
        level = below


def _report_saves(requests, to_report):
    """Watches the requested folders until the warm process ends, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the warm process handles Ctrl-C
    lock = threading.Lock()

    def send(message):
        with lock, contextlib.suppress(OSError):
            to_report.send(message)

    with contextlib.suppress(EOFError):
        while True:
            # One more thread for more folders: a restart of the first one would miss saves.
            threading.Thread(target=_watch, args=(*requests.recv(), send), daemon=True).start()


def _watch(folders, and_below, send):
    """Sends the paths of saved files; and_below: also those in current and later subfolders."""
    from watchfiles import Change, watch

    if and_below:
        folders = [below for folder in folders for below in folders_below(folder)]
    options = {"step": STEP_MS, "debounce": DEBOUNCE_MS, "recursive": False}
    while folders := list(filter(os.path.isdir, folders)):
        try:
            for changes in watch(*folders, **options, ignore_permission_denied=True):
                send([path for _, path in changes])
                created = [path for change, path in changes if change == Change.added]
                for folder in filter(os.path.isdir, created if and_below else []):
                    threading.Thread(target=_watch, args=([folder], True, send)).start()
                    send(list(_files_below(folder)))  # created before the folder was watched
        except FileNotFoundError:
            continue  # a folder was removed before it was watched
        except OSError as error:
            return send(str(error))


def _files_below(folder):
    for below in folders_below(folder):
        with contextlib.suppress(OSError):
            yield from [entry.path for entry in os.scandir(below)]
