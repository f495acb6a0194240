"""What a run tells the process that it was forked from: what it is made of."""

import contextlib
import os
import sys

from _jit_loader.watch.warm import is_installed


class Report:
    """Tells (files to watch, installed modules to import ahead of the next run)."""

    def __init__(self, connection):
        self._connection = connection
        self._told = set(sys.modules)

    def tell(self, files=()):
        """Tells these files, and what was imported since the last call."""
        files, modules = list(files), []
        for name in [name for name in sys.modules if name not in self._told]:
            self._told.add(name)
            # Not by getattr: some modules make what they are asked for.
            spec = getattr(sys.modules.get(name), "__dict__", {}).get("__spec__")
            if getattr(spec, "has_location", False):
                if is_installed(name, spec.origin):
                    modules.append(name)
                else:
                    files.append(os.path.abspath(spec.origin))
        if files or modules:
            with contextlib.suppress(OSError):  # the run may have closed all that it has open
                self._connection.send((files, modules))

    def asked(self, requests):
        """Tells the sources before a load: a first build may take minutes, or fail."""
        with contextlib.suppress(Exception):  # the load will raise it
            request = requests()[-1]
            self.tell([*request.sources, *(f"{path}/" for path in request.extra_include_paths)])

    def loaded(self, loaded, requests):
        """Tells all files that an extension was made of, after a load."""
        with contextlib.suppress(Exception):
            self.tell(_own_files(loaded, requests()[-1]))


def _own_files(loaded, request):
    from _jit_loader.cache.files import read_checked
    from _jit_loader.cache.store import OWN_FILES

    own = read_checked(os.path.join(os.path.dirname(loaded.path), OWN_FILES)) or ()
    return map(request.roots.absolute, own)
