"""Runs a script in this process as `python script.py` does."""

import builtins
import importlib
import importlib.machinery
import io
import os
import sys
import types

from _jit_loader.report.errors import CompileError


def run_as_main(script, arguments, at_end):
    """Runs a script, then raises SystemExit.

    at_end(): called at the end of the script, before its threads and exit handlers end.
    """
    _forget_the_parent()
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.realpath(script))
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    path = os.path.abspath(script)
    main.__file__, main.__cached__ = path, None
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    main.__builtins__ = builtins
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    try:
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        _show(error)
        raise SystemExit(130 if isinstance(error, KeyboardInterrupt) else 1) from None
    finally:
        at_end()
    raise SystemExit(0)


def _forget_the_parent():
    """Resets the state that forks of one process share and new processes do not."""
    importlib.invalidate_caches()
    # Python identifies bytecode by the source's size and time in whole seconds. Of two saves with
    # the same size within a second, it would run the first.
    sys.dont_write_bytecode = True
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    sys.modules["torch"].default_generator.seed()


def _show(error):
    """Shows an error without the loader's frames, and a compile error without any frame."""
    frames = None if isinstance(error, CompileError) else error.__traceback__.tb_next
    sys.excepthook(type(error), error.with_traceback(frames), frames)
