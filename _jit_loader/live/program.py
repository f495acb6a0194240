"""Compiles the device code of a .cu file with NVRTC, as nvcc compiles it for a library.

NVRTC knows no host code: launches, CUDA's runtime, the C++ library. The bodies of host functions
are therefore left out. If a kernel calls one, which nvcc would refuse, the code does not compile.
"""

import functools
import os
import re
import tempfile
from typing import NamedTuple

from _jit_loader.cache import cache_folder, digest_of
from _jit_loader.cache.store import family_of
from _jit_loader.cuda.device_code import DeviceText, without_errors
from _jit_loader.cuda.headers import with_headers
from _jit_loader.cuda.nvrtc import NvrtcError, Program, compile_program
from _jit_loader.cuda.preprocess import preprocess
from _jit_loader.cuda.ptxas import readable
from _jit_loader.cuda.torch_headers import torch_text
from _jit_loader.key.machine import this_machine
from _jit_loader.live import compare_cubins
from _jit_loader.live.edit import OF_CUB, NotLive
from _jit_loader.live.host_code import constants
from _jit_loader.system import read_text
from _jit_loader.system.processes import Workers

# nvcc's flags that NVRTC has under the same name.
_SAME = re.compile(
    r"-[DU].+|--?(?:std=c\+\+\d+|lineinfo|generate-line-info|use_fast_math|restrict"
    r"|extra-device-vectorization|(?:Xptxas|ptxas-options)=-(?:dlcm=\w+|O[0-2])"
    r"|(?:fmad|ftz|prec-div|prec-sqrt|maxrregcount)=\w+)"
)
# Flags of the host compiler that change no macro of the headers for device code, and nvcc's that
# say nothing about device code.
_WITHOUT_EFFECT = re.compile(
    r"(-Xcompiler|--compiler-options)=(-(fPIC|fopenmp|fno-gnu-unique|fvisibility=hidden|W[\w=-]*"
    r"|fno-strict-aliasing|[wg]|O[0-3])([ ,]+|$))*|(-Xptxas|--ptxas-options)=(-v|-O3|,)+"
    r"|-Xcudafe=(--diag_suppress=\w+,?)+|--?(t=?\d+|threads=\d+|w|disable-warnings|O[0-3]"
    r"|diag-suppress=[\w,]+|(res|resource)-usage|c|(expt-)?extended-lambda|Wno-[\w-]+"
    r"|expt-relaxed-constexpr|allow-unsupported-compiler|I.+|M[DM]+|(MF|o|ccbin|isystem)=.+)"
)
_TWO_WORDS = re.compile(
    r"--?(?:X?(?:compiler|ptxas|cudafe)(?:-options)?|maxrregcount|fmad|ftz|prec-div|prec-sqrt|std"
    r"|threads|t|diag-suppress|gen(?:erate-)?code|(?:gpu-)?arch(?:itecture)?|MF|o|ccbin|isystem|I)"
)
_SYNTAX = "-fdevice-syntax-only"
_FEW = 4  # kernels that are compiled though they were not launched
# Of headers that NVRTC reads for 1 s. KEEP keeps what it has read, until the process ends: 0.2 GB
# in the folder of temporary files.
KEEP = "--pch"
_precompiled = {}  # digest of a source's #includes and options: the option that is used for KEEP
_INCLUDES = re.compile(r"(?:#include .*\n)*")
_SLOW = re.compile(r"#include <(cub/|thrust/|cooperative_groups)")
_GENCODE = re.compile(r"--?gen(erate-)?code=arch=compute_(\w+),code=\[?(((sm|compute)_\2,?)+)\]?")
_ARCH = re.compile(r"^--?(?:gpu-)?arch(?:itecture)?=sm_(\w+)$")


class DeviceCode(NamedTuple):
    """The device code of an edit.

    Attributes:
        cubin: the compiled kernels.
        kernels: their mangled names.
        others: the mangled names of the kernels that are compiled at their first launch.
        program: the source of all of them.
        launched: the path of a file that gets the names of others once they are launched.
    """

    cubin: bytes
    kernels: set
    others: set
    program: Program
    launched: str


def compile_edit(source, launched, keeps=True):
    """Returns the DeviceCode of an edit.Source.

    launched: the mangled names of the kernels to compile; if it has none, those that were launched
    after earlier edits. The others are compiled at their first launch.
    keeps: whether NVRTC keeps what it reads of slow headers. That takes 0.4 s, and most processes
    that begin with an edit compile once.

    All kernels are checked for errors if none is compiled, and if the self-check has not compiled
    each: another function may have the same name as a kernel, so that NVRTC cannot find it. The
    names are host code, which does not change.

    Raises:
        NotLive: the edit is not in device code alone.
        ValueError, RuntimeError: NVRTC does not compile this as nvcc does.
    """
    removed = source.answer["removed"]
    program, code = program_of(source.inputs, removed)
    if _SLOW.search(code.text()):
        program = keep_headers(program._replace(source=_text(code, removed)))
    kernels = source.inputs.kernels
    family = family_of(os.path.dirname(os.path.dirname(source.host_object)))
    path = os.path.join(cache_folder(), "launches", digest_of(family))
    before = [*dict.fromkeys(reversed(read_text(path).split()))][:_FEW]
    # At the first launch NVRTC would read the headers again, which takes 1 s with CUB.
    compiled = kernels & launched or (kernels if len(kernels) <= _FEW else kernels & {*before})
    is_checked = not compiled or kernels - compiled - source.answer["kernels"].keys()
    keeps = keeps or (compiled and is_checked)  # it compiles twice
    now = program._replace(options=[each for each in program.options if keeps or each != KEEP])
    with Workers() as threads:  # 15 ms of Python, while NVRTC takes 50 ms without the GIL
        check = functools.partial(threads.results, [threads.submit(source.check_host_code)])
        if is_checked:
            # 0.05 s for all kernels of an op that NVRTC compiles in 1 s.
            _, removed = _compile(now, code, sorted(kernels), removed, [_SYNTAX], check)
        if compiled:
            cubin, removed = _compile(now, code, sorted(compiled), removed, check=check)
        else:
            cubin, _ = compile_program(Program("", "empty.cu", program.options[:1], {}))
        check()
    built = compare_cubins.cubin_of(source.host_object, cubin)
    if not all(map(OF_CUB.match, compare_cubins.kernels(built) - kernels)):
        raise NotLive("the build has a kernel that its record lacks")
    names = compare_cubins.variables(built)
    found = constants(*source.inputs[:3]) if names else set()
    if code.may_have_state() or len(found.intersection(names)) < len(names):
        raise NotLive("it has variables that host code may read or write")
    program = program._replace(source=_text(code, removed))
    return DeviceCode(cubin, compiled, kernels - compiled, program, path)


def keep_headers(program):
    """Returns a Program, which has its source, for which NVRTC keeps what it reads of the headers.

    NVRTC compares the options, but not the texts of headers, so a digest of these is an option.
    """
    options = [*program.options, _of_headers(program)]
    kept = _precompiled.get(digest_of([_INCLUDES.match(program.source)[0], options]), KEEP)
    return program._replace(options=[*options, kept])


def _of_headers(program):
    return f"-DJIT_LOADER_HEADERS={digest_of(sorted(program.headers.items()))}"


def precompile(program):
    """Keeps what NVRTC reads of the headers of a Program of keep_headers, for forks.

    Other processes cannot use the file: its addresses are this process's. A Program that does not
    begin with an #include, or whose digest is not that of its headers, is left out.
    """
    source, options = _INCLUDES.match(program.source)[0], program.options[:-1]
    if source and options[-1] == _of_headers(program):
        with tempfile.TemporaryDirectory(prefix="jit_loader-") as folder:
            path = os.path.join(folder, "headers.pch")
            options_now = [*options, f"--create-pch={path}"]
            compile_program(program._replace(source=source, options=options_now))
            file = os.open(path, os.O_RDONLY)  # until this process ends, in any way
        _precompiled[digest_of([source, options])] = f"--use-pch=/proc/self/fd/{file}"


def compile_device(inputs, kernels):
    """Compiles kernels of a .cu file; returns (the cubin, the keys of what NVRTC cannot compile).

    inputs: edit.Inputs. kernels: the mangled names of those to compile.

    Raises:
        NotLive, NotUnderstood: NVRTC cannot compile this as nvcc does.
        NvrtcError: the code does not compile.
        ToolMissing: there is no NVRTC.
    """
    removed = without_errors(*program_of(inputs, []), [], list(map(readable, kernels)))
    return _compile(*program_of(inputs, removed), kernels, removed)


def _compile(program, code, kernels, removed, options=(), check=lambda: None):
    """Does the same for a Program and its DeviceText.

    removed: the keys that were returned before. options: further ones of NVRTC. check(): raises an
    error that explains why the code may not compile.
    """
    wanted, removed = program._replace(options=[*program.options, *options]), sorted(removed)
    try:
        return compile_kernels(wanted._replace(source=_text(code, removed)), kernels), removed
    except NvrtcError:
        check()  # each of the next compilations takes NVRTC as long
        more = without_errors(program, code, removed, list(map(readable, kernels)))
        if more == removed:
            raise
    return compile_kernels(wanted._replace(source=_text(code, more)), kernels), more


def _text(code, removed):
    """Returns the text of a DeviceText for NVRTC, without #line before the last of its #includes.

    With it, --pch does not keep what NVRTC has read: with CUB, 1.7 s at each edit instead of 0.7 s.
    """
    text = code.text(removed)
    head = re.match(r"(?:#(?:line|include) .*\n|\n)*", text)[0]
    lines = head[head.rfind("#line") :] if "#line" in head else ""
    if "#include" in lines:
        return text
    return "".join([*re.findall("#include .*\n", head), lines, text[len(head) :]])


def program_of(inputs, removed):
    """Returns (the Program without its source, its DeviceText).

    removed: the keys of declarations whose headers NVRTC does not need.
    """
    source, texts, command, kernels = inputs
    options, included = nvrtc_options(command, source)
    found = preprocess(source, texts, command, options[0].removeprefix("-arch=sm_"))
    code = DeviceText(found.text, next(filter(None, map(_anonymous_namespace, kernels)), ""))
    # A type may be mentioned by host code alone, and be an argument of a kernel.
    text = " ".join([re.sub("#line .*", "", code.text(removed)), *map(readable, kernels)])
    words = {*re.findall(r"[^\W\d]\w*", text)}
    # -w: libstdc++'s headers cause warnings. -split-compile: with one thread per core. One program
    # for each of add2's 8 kernels, in 8 threads, took 0.3 s; this one takes 0.2 s.
    program = Program("", source, [*options, "-w", "-split-compile=0"], {})
    torch = torch_text(found, words, command, options)
    return with_headers(program, [*found.before, *included], found.headers, words, torch), code


def nvrtc_options(command, source):
    """Returns (NVRTC's options, the headers of -include) for the words of nvcc's command.

    Raises:
        NotLive: a flag is not known, or not exactly one architecture fits this machine's GPUs.
    """
    options, included, architectures = [], [], set()
    words = iter(command[1:])
    for word in words:
        if _TWO_WORDS.fullmatch(word):
            word = f"{word}={next(words, '')}"
        word = _ARCH.sub(r"-gencode=arch=compute_\1,code=[sm_\1,compute_\1]", word)
        if word == "-include":
            included.append(next(words, ""))
        elif match := _GENCODE.fullmatch(word):
            architectures.update(match[3].split(","))
        elif _SAME.fullmatch(word):
            options.append(word)
        elif word != source and not _WITHOUT_EFFECT.fullmatch(word):
            raise NotLive(f"NVRTC has no equivalent of {word}")
    found = {each for each in architectures if each.startswith("sm_")}
    if len(architectures) > 1:  # CUDA takes the code for the GPU, or compiles PTX for it
        gpus = {f"sm_{each.replace('.', '')}" for each in this_machine().architectures}
        found = {each for each in found if {each.rstrip("af")} == gpus}
    if len(found) != 1:
        raise NotLive("not exactly one architecture of the build is that of this machine's GPUs")
    return [f"-arch={found.pop()}", *options], included


def _anonymous_namespace(mangled):
    """Returns nvcc's name of the anonymous namespace that a kernel is in, or ""."""
    match = re.search(r"(\d+)(?=_GLOBAL__N_)", mangled)
    return mangled[match.end() : match.end() + int(match[1])] if match else ""


def compile_kernels(program, kernels):
    """Returns the cubin of a Program with some of its kernels, given by mangled name.

    Raises:
        NotLive: NVRTC gives a kernel another name.
        NvrtcError: the code does not compile.
        ToolMissing: there is no NVRTC.
    """
    cubin, names = compile_program(program, list(map(readable, kernels)))
    if not kernels or sorted(names.values()) != sorted(kernels):
        raise NotLive("a kernel has internal linkage, or none is known")
    return cubin
