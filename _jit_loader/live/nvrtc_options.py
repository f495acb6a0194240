"""Translates nvcc's command line into options of NVRTC."""

import re

# nvcc's flags that NVRTC has under the same name.
_SAME = re.compile(
    r"-D.+|-U.+|-std=c\+\+\d+|-lineinfo|(?:--?use_fast_math)"
    r"|--?(?:fmad|ftz|prec-div|prec-sqrt|maxrregcount)=\w+"
)
# Flags of the host compiler that change no macro, and nvcc's that say nothing about device code.
_HOST = re.compile(r"-fPIC|-fno-gnu-unique|-fvisibility=hidden|-W[\w=-]*|-O[0-3]|-g")
_WITHOUT_EFFECT = re.compile(r"-O[0-3]|--expt-relaxed-constexpr|-M[DM]+|-c|-Wno-[\w-]+")
_WITHOUT_EFFECT_TWO_WORDS = ("-MF", "-o", "-ccbin")
_ARCHITECTURE = re.compile(r"-gencode=arch=compute_(\w+),code=sm_(\w+)")


class Unsupported(ValueError):
    """NVRTC has no known equivalent of nvcc's command."""


def nvrtc_options(command, source):
    """Returns (options, the folders of -I, those of -isystem) for the words of nvcc's command.

    Raises:
        Unsupported: a flag is not known, or there is not exactly one architecture.
    """
    options, folders, system, architectures = [], [], [], []
    words = iter(command[1:])
    for word in words:
        if word in ("--compiler-options", "-Xcompiler"):
            word = f"-Xcompiler={next(words, '')}"
        if word in _WITHOUT_EFFECT_TWO_WORDS:
            next(words, None)
        elif word.startswith("-Xcompiler="):
            if not all(map(_HOST.fullmatch, re.split(r"[ ,]+", word[len("-Xcompiler=") :]))):
                raise Unsupported(word)
        elif word == "-isystem":
            system.append(next(words, ""))
        elif word.startswith("-I"):
            folders.append(word[2:] or next(words, ""))
        elif match := _ARCHITECTURE.fullmatch(word):
            architectures.append(match[2])
        elif _SAME.fullmatch(word):
            options.append(word)
        elif word != source and not _WITHOUT_EFFECT.fullmatch(word):
            raise Unsupported(word)
    if len(architectures) != 1:
        raise Unsupported("not exactly one architecture")
    return [f"-arch=sm_{architectures[0]}", *options], folders, system
