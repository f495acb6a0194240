"""Tells what is saved, from a process of its own: threads would not survive our forks."""

import contextlib
import multiprocessing.connection
import os
import signal
import threading

# An editor may write, rename and delete for one save; what follows within this time belongs to it.
STEP_MS = 10
DEBOUNCE_MS = 200  # but no longer, where something writes all the time

# What a project's code is not kept in; watchfiles knows .git, node_modules and the like.
OTHER_FOLDERS = ("build", "dist")
FOLDERS_LIMIT = 5000  # of inotify's watches, of which a user may have 8192 on an older system


class Saves:
    """The process that tells, and the folders that it watches."""

    def __init__(self):
        asked, self._ask = multiprocessing.connection.Pipe(duplex=False)
        self.told, tell = multiprocessing.connection.Pipe(duplex=False)
        self._watched = set()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._ask.close()
                _tell_saves(asked, tell)
            finally:
                os._exit(0)
        asked.close()
        tell.close()

    def watch(self, folders):
        """Has folders watched, too, each without those that it holds."""
        new = {folder for folder in folders if os.path.isdir(folder)} - self._watched
        if new:
            self._watched |= new
            self._ask.send((sorted(new), False))

    def watch_below(self, root):
        """Has a project's folders watched, those that are made later among them."""
        self._ask.send(([root], True))

    def leave(self):
        """For a child: the process ends when this one does, whoever else is left."""
        self._ask.close()
        self.told.close()

    def paths(self):
        """The files that were made, changed or removed since the last call.

        Raises:
            RuntimeError: they can be watched no longer.
        """
        paths = []
        while self.told.poll():
            try:
                message = self.told.recv()
            except EOFError:
                raise RuntimeError("the process that watches the files has ended") from None
            if isinstance(message, str):
                raise RuntimeError(f"files cannot be watched: {message}")
            paths += message
        # One that was removed, or renamed, is watched no longer, though it come again.
        self._watched.difference_update(path for path in paths if not os.path.isdir(path))
        return paths


def folders_below(root):
    """Yields a project's folders, the root first, that may hold code."""
    from watchfiles import DefaultFilter

    passed_over = {*DefaultFilter.ignore_dirs, *OTHER_FOLDERS}
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
                    and entry.name not in passed_over
                    and not os.path.exists(os.path.join(entry.path, "pyvenv.cfg"))
                ]
        level = below


def _tell_saves(asked, tell):
    """Ends when the process that asks has ended, however that was."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    lock = threading.Lock()

    def send(message):
        with lock, contextlib.suppress(OSError):
            tell.send(message)

    with contextlib.suppress(EOFError):
        while True:
            # More folders get a thread more: nothing is missed, as it would be in a new start.
            threading.Thread(target=_watch, args=(*asked.recv(), send), daemon=True).start()


def _watch(folders, and_below, send):
    """and_below: the folders in these too, and those that are made in them later."""
    from watchfiles import Change, watch

    if and_below:
        folders = [below for folder in folders for below in folders_below(folder)]
    options = {"step": STEP_MS, "debounce": DEBOUNCE_MS, "recursive": False}
    while folders := list(filter(os.path.isdir, folders)):
        try:
            for changes in watch(*folders, **options, ignore_permission_denied=True):
                send([path for _, path in changes])
                made = [path for change, path in changes if change == Change.added]
                for folder in filter(os.path.isdir, made if and_below else []):
                    threading.Thread(target=_watch, args=([folder], True, send)).start()
                    send(list(_files_below(folder)))  # made in there before it is watched
        except FileNotFoundError:
            continue  # one was removed before it was watched
        except OSError as error:
            return send(str(error))


def _files_below(folder):
    for below in folders_below(folder):
        with contextlib.suppress(OSError):
            yield from [entry.path for entry in os.scandir(below)]
