"""The build.ninja of a request: PyTorch's flags, in the loader's rules.

PyTorch's load runs up to the point where it would write the file, and so has all flags. For that,
some names of its module are replaced in a copy (as read in PyTorch 2.11 to 2.15).

The flags are kept, because importing PyTorch's module takes 0.07 to 0.4 s. They are valid for an
unchanged call: the arguments, the environment, the CUDA Toolkit's folder and the code of PyTorch's
module are the same. A process that has already executed that module asks PyTorch's functions,
because the program may have changed the module.

ninja decides by timestamps, the loader by content: the file has no edges for objects that still
fit, so that ninja runs only the other steps, in parallel.
"""

import contextlib
import os
import re
import shlex
import sys

from _jit_loader.build.inputs.compilers import is_gnu
from _jit_loader.build.pytorch import extension_header
from _jit_loader.build.pytorch.cpp_extension import copy_of_names
from _jit_loader.build.pytorch.libraries import link_missing_names
from _jit_loader.cache import digest_of, stamp
from _jit_loader.cache.files import read_checked, write_checked
from _jit_loader.key import CUDA_SETTINGS, SETTINGS, toolchain
from _jit_loader.system import is_set

NAME_MACRO = "TORCH_EXTENSION_NAME"  # PyTorch passes it to every compilation
KEPT = "flags.json"  # in the folder of a request's builds
FLAGS = ("cflags", "cuda_cflags", "ldflags", "objects", "library_target")  # of _write_ninja_file

# Depfiles list system headers too (PyTorch passes -MMD). -Xptxas=-v prints the resources of each
# kernel, and does not change the object; --trace prints the files that are linked.
COMMANDS = {
    "compile": "{cxx} {header_flags} {cflags} -MD -MF {out}.d -c {in} -o {out} {source_flags}",
    "cuda_compile": "{nvcc_prefix} {nvcc} -Xptxas=-v {cuda_cflags} -MD -MF {out}.d -c {in} "
    "-o {out} {source_flags}",
    "device_link": "{nvcc} {device_link_flags} -dlink {in} -o {out} -lcudadevrt",
    "link": "{cxx} {in} {ldflags} -o {out} -Wl,--trace",
}
# nvcc's flags for device code that nvlink links.
RELOCATABLE = re.compile(
    r"(?<!\S)(?:(?:--?rdc|--?relocatable-device-code)[= ]true|--?dc|--device-c)(?!\S)"
)
# Separates the statics of a rebuilt module from those of the old version. g++ marks the statics of
# inline functions and templates as unique in a process.
OWN_STATICS = "-fno-gnu-unique"
# g++ then collects its garbage from 1 GB on, not 128 MB. A binding of an op takes 8% less time;
# torch/extension.h without the frontend 9%, and 1.4 GB instead of 1.1.
LESS_COLLECTION = "--param=ggc-min-heapsize=1000000"
USERS_DEPFILE = re.compile(r"(?<!\S)-Wp,-MM?D,[^,\s]+(?!\S)")  # it would replace the loader's


class NinjaFile:
    """The steps of a build: {output: (key of COMMANDS, [inputs])} of its edges, and their flags.

    flags: the FLAGS for a request. nvcc: the text of nvcc's command, "" without CUDA.

    without_frontend: the objects whose torch/extension.h lacks PyTorch's C++ frontend.
    needs_frontend: those of which a compiler's error has said that they need it.
    """

    def __init__(self, flags, request, nvcc):
        self._values = {"cxx": shlex.join(toolchain.cxx_command()), "nvcc": nvcc}
        for name in ("cflags", "cuda_cflags", "ldflags"):
            text = _expanded(" ".join(flag.strip() for flag in flags[name] or ()))
            self._values[name] = USERS_DEPFILE.sub("", text)
        self.edges, self._source_flags = {}, {}
        for output, source in zip(flags["objects"], request.sources):
            kind = "cuda_compile" if output.endswith(".cuda.o") else "compile"
            self.edges[output] = kind, [source]
            self._source_flags[output] = _expanded(" ".join(request.source_flags.get(source, ())))
        objects = list(self.edges)
        if any(map(self.is_cuda, objects)) and self._is_relocatable():
            objects.insert(0, self._link_device_code())
        self.edges[flags["library_target"]] = "link", objects
        self.library = flags["library_target"]
        reasons = extension_header.choose(request)
        compilations = self.compilations.items()
        self.without_frontend = {out for out, path in compilations if reasons.get(path, "") is None}
        self.needs_frontend = set()

    def _is_relocatable(self):
        flags = [self._values["cuda_cflags"], *self._source_flags.values()]
        added = [os.environ.get(f"NVCC_{place}_FLAGS", "") for place in ("PREPEND", "APPEND")]
        return any(map(RELOCATABLE.search, [*flags, *added]))

    def _link_device_code(self):
        """Adds the step that links device code of several sources; returns its output.

        PyTorch's BuildExtension has it, and its load lacks it. Such a library could not be loaded:
        each object refers to a function __cudaRegisterLinkedBinary_<id>, which this step defines.
        """
        flags = re.sub(r"(?<!\S)(?:--?dc|--device-c)(?!\S)", "", self._values["cuda_cflags"])
        self._values["device_link_flags"] = flags  # without flags that name another step
        self._values["ldflags"] += " -lcudadevrt"
        self.edges["device_link.o"] = "device_link", list(filter(self.is_cuda, self.edges))
        return "device_link.o"

    def add_frontend(self, outputs):
        self.without_frontend -= outputs
        self.needs_frontend |= outputs

    @property
    def compilations(self):
        """{object: source} of the edges that compile."""
        edges = self.edges.items()
        return {output: inputs[0] for output, (kind, inputs) in edges if "compile" in kind}

    def is_cuda(self, output):
        return self.edges[output][0] == "cuda_compile"

    @property
    def link_flags(self):
        return self._values["ldflags"]

    def command(self, output, link_flags=None):
        """Returns the words of the command that makes an output. link_flags: replace PyTorch's."""
        return shlex.split(self._command(output, link_flags))

    def _command(self, output, link_flags, header_flags=(), nvcc_prefix=()):
        """Returns the text of a command for the shell."""
        kind, inputs = self.edges[output]
        words = shlex.split(self._values["nvcc"])
        is_nvcc = len(words) == 1 and os.path.basename(words[0]) == "nvcc"
        header_flag = f" -D{extension_header.MACRO}" if output in self.without_frontend else ""
        values = {
            **self._values,
            "header_flags": " ".join(header_flags),
            "source_flags": self._source_flags.get(output, "") + header_flag,
            "nvcc_prefix": shlex.join(nvcc_prefix if is_nvcc else ()),
            "in": shlex.join(inputs),
            "out": shlex.quote(output),
        }
        if link_flags is not None:
            values["ldflags"] = link_flags
        return COMMANDS[kind].format_map(values)

    def text_to_run(self, kept, link_flags=None, header_flags=None, nvcc_prefix=()):
        """Returns the text for ninja, without edges for the objects that are kept.

        link_flags: flags that replace PyTorch's. header_flags: {C++ object: flags that include a
        precompiled header}.
        nvcc_prefix: words before nvcc, such as those of halves.py, if it is nvcc itself and not a
        wrapper such as sccache.
        """
        lines = ["rule run", "  command = $text"]
        for output, (kind, inputs) in self.edges.items():
            if output not in kept:
                first = (header_flags or {}).get(output, ())
                text = self._command(output, link_flags, first, nvcc_prefix)
                objects = [] if "compile" in kind else inputs
                lines.append(f"build {output}: run {' '.join(objects)}")
                lines.append(f"  text = {text.strip().replace('$', '$$')}")
                lines.append(f"  description = {output}")  # $out would be quoted for a shell
        return "\n".join([*lines, f"default {self.library}", ""])


def make_ninja_file(request, folder, builds_folder, digests):
    """Returns the NinjaFile of a request.

    folder: the build's, the linker's working folder. builds_folder: where the flags are kept.
    """
    cuda_home = toolchain.cuda_home() if request.with_cuda else None
    flags = _flags(_arguments(request, folder, cuda_home), cuda_home, builds_folder, digests)
    if cuda_home is None:
        return NinjaFile(flags, request, nvcc="")
    nvcc = _expanded(os.environ.get("PYTORCH_NVCC", ""))
    return NinjaFile(flags, request, nvcc or shlex.quote(os.path.join(cuda_home, "bin", "nvcc")))


def _arguments(request, folder, cuda_home):
    """Returns {name: value} of the arguments of _write_ninja_file_and_build_library."""
    gnu = is_gnu(toolchain.cxx_command())
    is_opened = request.form != "executable"
    cflags = [*([OWN_STATICS, LESS_COLLECTION] if gnu else []), *request.extra_cflags]
    cuda_cflags, more = list(request.architecture_flags), []
    if request.with_cuda:
        cuda_cflags += [f"-Xcompiler={OWN_STATICS}"] if is_gnu(toolchain.host_command()) else []
        cuda_cflags += request.extra_cuda_cflags
        if is_set("JIT_LOADER_LINEINFO"):  # source lines for profilers and cuda-gdb
            cuda_cflags.append("-lineinfo")
        for path in toolchain.more_include_folders(cuda_home):
            more.append(f"-isystem {shlex.quote(path.replace('$', '$$'))}")
    words = toolchain.split(" ".join(request.extra_ldflags), "extra_ldflags")
    return {
        "name": request.name,
        "sources": plain_names(request.sources),
        "extra_cflags": cflags + more,
        "extra_cuda_cflags": cuda_cflags + more,
        "extra_sycl_cflags": [],
        "extra_ldflags": [
            # Binds all functions when the library is loaded. If a library that a flag names has
            # lost one, a hit has to raise an ImportError too, as PyTorch's load does.
            *(["-Wl,-z,now"] if request.extra_ldflags and is_opened else []),
            *request.extra_ldflags,
            *link_missing_names(cuda_home, words, folder),
            *openmp_flags(gnu, request.extra_cflags),
        ],
        "extra_include_paths": [path.replace("$", "$$") for path in request.extra_include_paths],
        "build_directory": os.sep,  # nothing is written
        "verbose": False,
        "with_cuda": request.with_cuda,
        "with_sycl": False,
        "is_standalone": request.form == "executable",
    }


def plain_names(sources):
    """Returns a file name for each source, for PyTorch to derive the names of objects from.

    It names an object after the file name of its source, so a/x.cpp and b/x.cpp would share one,
    and it does not escape $, : or quotes.
    """
    names, objects = [], set()  # x.cu becomes x.cuda.o, other x become x.o
    for source in sources:
        stem, ending = os.path.splitext(os.path.basename(source))
        stem, is_cuda = re.sub(r"\W", "_", stem, flags=re.ASCII), ending in (".cu", ".cuh")
        name, number = stem, 1
        while (name, is_cuda) in objects:
            number += 1
            name = f"{stem}_{number}"
        objects.add((name, is_cuda))
        names.append(name + ending)
    return names


def _flags(arguments, cuda_home, builds_folder, digests):
    """Returns the FLAGS for a call of PyTorch's function: the kept ones, or new ones."""
    if "torch.utils.cpp_extension" in sys.modules:
        return pytorchs_flags(arguments, cuda_home)
    call = [
        arguments,
        {name: os.environ.get(name) for name in SETTINGS + CUDA_SETTINGS},
        [cuda_home, cuda_home and stamp(cuda_home)],
        [sys.prefix, sys.base_prefix, toolchain.packages_folder()],
        digests.digest(toolchain.cpp_extension_path()),
    ]
    path, key = os.path.join(builds_folder, KEPT), digest_of(call)
    kept = read_checked(path)
    if kept is None or kept["key"] != key:
        kept = {"key": key, "flags": pytorchs_flags(arguments, cuda_home)}
        with contextlib.suppress(OSError):
            write_checked(path, kept)
    return kept["flags"]


def pytorchs_flags(arguments, cuda_home):
    """Returns the FLAGS that PyTorch would write into build.ninja."""
    found, names = {}, copy_of_names()
    names.update(
        CUDA_HOME=cuda_home,  # the module's is that of the program, and the same for all threads
        # Gets all flags.
        _write_ninja_file=lambda **values: found.update({name: values[name] for name in FLAGS}),
        _run_ninja_build=lambda *_, **__: None,
        # ninja is found by its path, even if it is not on PATH.
        verify_ninja_availability=lambda: None,
        # PyTorch's function runs the compiler twice, to warn if it is too old for its headers.
        get_compiler_abi_compatibility_and_version=lambda *_: (True, None),
    )
    names["_write_ninja_file_and_build_library"](**arguments)
    return found


def openmp_flags(gnu, cflags):
    """Returns the linker flag for clang's OpenMP. PyTorch's libraries already contain g++'s."""
    return ["-fopenmp"] if "-fopenmp" in cflags and not gnu else []


def _expanded(text):
    """Returns what a text of PyTorch's stands for in a file of ninja."""
    return re.sub(r"\$(?:([ :$])|\w+|\{[\w.-]+\})", lambda match: match[1] or "", text)
