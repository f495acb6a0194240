"""Formats errors for people: file:line of the first one, its source line, and advice."""

import os
import re
import shlex

from _jit_loader.report.text import count, demangled, printable
from _jit_loader.system import read_text

ERROR_LINE = re.compile(
    r"^(?P<file>\S.*?)(?::(?P<line>\d+)(?::\d+)?|\((?P<nvcc_line>\d+)\)):? "
    r"(?:fatal |catastrophic )?[Ee]rror\b(?: #\d+(?:-D)?)?:? ?(?P<message>.*)$"
)
# Errors that name a symbol instead of a source line.
SYMBOL_ERROR = re.compile(
    r"^.*?(?P<message>"
    r"(?:(?i:undefined) reference to|multiple definition of|Unresolved extern function"
    r"|Entry function|Not a name of any known instruction:|Unknown modifier) [`'](?P<quoted>.+?)'"
    r"(?: uses .*)?|undefined symbol: (?P<missing>.+?)(?=, version |$))"
)
TIMEOUT = re.compile(r"error: (?P<file>\S.*): its compiler did not finish within ")
# Lines of failures that name neither a line nor a symbol, the most informative first.
OTHER_ERRORS = [
    TIMEOUT.pattern,
    r".*(?:No space left on device|Disk quota exceeded)",
    r".*cannot find ",
    r"(?:\S*/)?ld(?:\.\w+)?: (?!warning: )",
    r"(?i).*\b(?:error|fatal) *:(?!:)",
]
NO_NAME = r"<[^<>]*>|\([^()]*\)|\[abi:\w+\]|( const)?( &&?)?$"  # what follows a function's name
NO_CODE = re.compile(r"\s*(//|\*|/\*|#\s*include)")
FURTHER_ERRORS = 20  # that a message lists
HINTS = {
    r"Python\.h: No such file": "Python's headers are missing: install python3-dev",
    r"cannot find -l([^\s:]+)": "lib{0} is not in the linker's search path: add its folder with -L",
    r"[Uu]nsupported gpu architecture": (
        "this nvcc is older than the GPU: set TORCH_CUDA_ARCH_LIST to an older architecture, such "
        "as 9.0+PTX, or install a newer nvcc"
    ),
    r"unsupported GNU version": "this nvcc needs an older host compiler: set CC and CXX",
    # A class without a definition of its virtual functions has no vtable and no typeinfo.
    r"(?i:undefined) (?:reference to|symbol:|(?:hidden )?symbol [`'](?:vtable|typeinfo))": (
        "it is declared, but not defined: add its source to the list of sources; instantiate a "
        "template for these types"
    ),
    r"Unresolved extern function": (
        "a kernel cannot call a __device__ function of another source: define it in a header, or "
        "pass extra_cuda_cflags=['-rdc=true']"
    ),
    r"multiple definition of": "two sources define it; in a header it must be inline",
    r"(?m)^(?!.*undefined (?:hidden )?symbol [`'](?:vtable|typeinfo)).*with -fPIC": (
        "an object or archive that is linked in was compiled without -fPIC: compile it with -fPIC"
    ),
    r"module export function \(PyInit_(\w+)\)": (
        "define PYBIND11_MODULE(TORCH_EXTENSION_NAME, m), or in an op PYTHON_MODULE(module)"
    ),
    r"cannot open shared object file": (
        "add its folder to extra_ldflags: -Wl,-rpath,<folder>, or to LD_LIBRARY_PATH"
    ),
    r"Killed signal terminated program|died due to signal 9|killed by signal 9": (
        "it was killed, usually because memory ran out: set MAX_JOBS=1"
    ),
    r"No space left on device|Disk quota exceeded": (
        "the disk is full, or your quota of it is used up: free some space, or name another folder "
        "in JIT_LOADER_CACHE, or in TMPDIR for the compilers' temporary files (by default /tmp)"
    ),
    # In a load_inline's main.cpp.
    r"main\.cpp:[\d:]+ error: .*(?:declared|no matching).*\n.*"
    r'm\.def\("(\w+)", (?:torch::wrap_pybind_function\()?\1\)?, "': (
        "functions= names {0}, which cpp_sources must declare, and only once: correct the name, or "
        "declare it there, as in 'torch::Tensor {0}(torch::Tensor x);', if cuda_sources defines "
        "it; if it is overloaded, write a PYBIND11_MODULE, with py::overload_cast, in cpp_sources"
    ),
    # The last -std in the command that failed.
    r"(-std=\S+)(?!.* -std=)(?:.*\n)+?.*C\+\+(\d+) or later compatible compiler is required": (
        "PyTorch's headers need C++{1}: remove {0} from the flags, or pass -std=c++{1}"
    ),
}


class ShownAlone:
    """Makes IPython show an error without a traceback, whose frames would be the loader's."""

    def _render_traceback_(self):
        return f"{type(self).__name__}: {self}".splitlines()


class CompileError(ShownAlone, RuntimeError):
    """A source does not compile, link or load. The message names the first error.

    Attributes:
        output: all that the compilers and the linker printed.
        stage: "compile", "link" or "load"; None if it is not known.
        file, line: where the first error is; None if the compiler names no place.
        message: the first error alone.
        kernels: dicts of the registers, spills, shared memory and stack of kernels that did
            compile.
    """

    output = message = ""
    stage = file = line = None
    kernels = ()


class LoadError(CompileError, ImportError):
    """A module compiles but cannot be imported. PyTorch raises an ImportError in this case."""


class LibraryLoadError(CompileError, OSError):
    """A library compiles but cannot be loaded. PyTorch raises an OSError in this case.

    A library is a build with is_python_module=False, for example one that registers operators.
    """


class NotInTime(CompileError, TimeoutError):
    """An extension was not loaded within the timeout of load_many."""


# {form: (the error that loading it raises, the error that is raised instead)}. Two classes are
# necessary, because Python does not allow a class that is both an ImportError and an OSError.
LOAD_ERRORS = {"module": (ImportError, LoadError), "library": (OSError, LibraryLoadError)}


class ToolMissing(ShownAlone, RuntimeError):
    """Something must be compiled and a tool is missing. The message says how to install it."""


class CompilingForbidden(ToolMissing):
    """Something must be compiled, and JIT_LOADER_NO_COMPILE forbids it."""


class CudaMissing(ToolMissing, OSError):
    """CUDA code must be compiled and nvcc is missing. PyTorch raises an OSError in this case."""


def compile_error(name, title, output, folder, project, ninja, sources):
    """Returns the CompileError for the output of a failed build.

    The message has the first error, with its source line and the next step, in at most ten lines;
    then a line for each further error; then PyTorch's sentence, which programs look for.

    Arguments:
        name, title: the extension's.
        output: the lines that the compilers and the linker printed.
        folder: the folder of the log and build.ninja, which are kept to run the step again.
        project: the folder that paths are shown relative to.
        ninja: the path of ninja.
        sources: the user files, which are searched for the symbol that an error names.
    """
    errors = errors_with_line(output, project) or _with_symbol(output, sources)
    path = number = None
    if errors:
        path, number, message, _ = errors[0]
        lines = first_error(title, errors, project)
    else:
        message = _most_informative_line(output)
        if match := TIMEOUT.match(message):
            path = os.path.join(project, match["file"])
        lines = [f"{title}: {message}"]
    text = "\n".join(output)
    for pattern, hint in HINTS.items():
        if match := re.search(pattern, text):
            lines.append(f"  {hint.format(*match.groups())}")
    lines.append(f"  full compiler output: {os.path.join(folder, 'log')}")
    lines.append(f"  run it again: {shlex.join([ninja, '-C', folder])}")
    for further in errors[1 : 1 + FURTHER_ERRORS]:
        lines.append(f"{place(*further[:2], project)}error: {further[2]}")
    lines.append(f"Error building extension '{name}'")
    # Compilers may print any bytes, and quote those of the source.
    error = CompileError(printable("\n".join(lines)))
    error.output = printable(text)
    error.file, error.line, error.message = path, number, printable(message)
    return error


def files_with_errors(output):
    """Returns the paths of the files in which compilers found errors."""
    return {os.path.normpath(match["file"]) for match in map(ERROR_LINE.match, output) if match}


def first_error(title, errors, project):
    """Returns lines with the first of some errors, its source line and the number of the others.

    errors: as errors_with_line returns them. project: as in compile_error.
    """
    path, number, message, via = errors[0]
    lines = [f"{title}: {place(path, number, project)}error: {message}", *source_line(path, number)]
    if via:
        lines += [f"  required from {place(*via, project).rstrip(': ')}", *source_line(*via)]
    if errors[1:]:
        lines.append(f"  and {count(len(errors) - 1, 'more error')}")
    return lines


def errors_with_line(output, project):
    """Returns [(path, line number, message, required from)] of the errors that name a line.

    required from: (path, line number) of the project's line that includes or instantiates the code
    of an error elsewhere; otherwise None.
    """
    found = {}
    via = None  # the last line of the project that is named since the last error
    named = re.compile(rf"({re.escape(project + os.sep)}.+?)[:(](\d+)")
    for line in output:
        if match := ERROR_LINE.match(line):
            path, number = os.path.normpath(match["file"]), match["line"] or match["nvcc_line"]
            outside = not path.startswith(project + os.sep) and os.path.isabs(path)
            found.setdefault((path, int(number), match["message"]), via if outside else None)
            via = None
        # Such as 'In file included from <path>:<number>' and '<path>:<number>: required from ...'.
        elif match := named.search(line):
            via = match[1], int(match[2])
    return [(*error, via) for error, via in found.items()]


def _with_symbol(output, sources):
    """Returns a list as errors_with_line does, of errors that name a symbol.

    The path is None if no source names the symbol.
    """
    found = []
    for match in filter(None, map(SYMBOL_ERROR.match, output)):
        symbol = match["quoted"] or match["missing"]
        name = demangled(symbol)
        place_of_use = first_use(name, sources) or (None, None)
        found.append((*place_of_use, match["message"].replace(symbol, name), None))
    return list(dict.fromkeys(found))


def _most_informative_line(output):
    for pattern in OTHER_ERRORS:
        for line in output:
            if re.match(pattern, line):
                return line
    lines = [line for line in output if line.strip() and "build stopped" not in line]
    return lines[-1] if lines else "the build failed"


def place(path, number, project):
    """Returns a place as 'kernels/add2.cu:8: '; '' if the path is None.

    Paths inside the project are shown relative to it.
    """
    if path is None:
        return ""
    shown = os.path.relpath(path, project) if path.startswith(project + os.sep) else path
    return f"{shown}:{number}: "


def source_line(path, number):
    """Returns the line of a file as ['  8 | its text']; [] if it is empty or cannot be read."""
    lines = read_text(path).split("\n")[number - 1 : number] if path else []
    return [f"  {number} | {line.rstrip()}" for line in lines if line.strip()]


def first_use(symbol, files):
    """Returns (path, line number) of a symbol's first call or declaration in files, or None.

    If there is none, the first other occurrence is returned. Calls and declarations come first,
    because the name of an op also occurs in strings and names of headers.
    """
    name = _last_name(symbol)
    not_within = r"(?<!\w)" if re.match(r"\w", name) else ""  # ".bar" follows a word
    named = not_within + re.escape(name) + r"(?!\w)"
    for pattern in (named + r"\s*[(<]", named):
        for path in files:
            for number, line in enumerate(read_text(path).split("\n"), 1):
                if re.search(pattern, line) and not NO_CODE.match(line):
                    return path, number
    return None


def _last_name(symbol):
    """Returns 'scale' for 'void ns::scale<float>(float*, long)'."""
    name = symbol
    while (shorter := re.sub(NO_NAME, "", name)) != name:
        name = shorter
    return re.split(r"::| ", name)[-1] or symbol
