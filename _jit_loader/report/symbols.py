"""Names of functions and instructions in errors: as they are written, and where they are used."""

import contextlib
import ctypes
import re

MADE_FOR = r"^(?:vtable|typeinfo|typeinfo name|VTT|guard variable) for "  # a class or a variable
NO_CODE = re.compile(r"\s*(//|\*|/\*|#\s*include)")


def demangled(name):
    """'scale(float*, long)' for '_Z5scalePfl'; any other name as it is."""
    if not name.startswith("_Z"):
        return name
    with contextlib.suppress(OSError):
        library = ctypes.CDLL("libstdc++.so.6")  # PyTorch needs it, so it is there
        library.__cxa_demangle.restype = ctypes.c_void_p
        status = ctypes.c_int()
        found = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
        if found:
            text = ctypes.string_at(found).decode(errors="replace")
            ctypes.CDLL(None).free(ctypes.c_void_p(found))
            return text
    return name


def first_use(symbol, files):
    """(path, line number) where the files first call or declare a symbol, or else name it; or None.

    An op's name stands in strings and names of headers too: a call tells more.
    """
    name = _last_name(symbol)
    not_within = r"(?<!\w)" if re.match(r"\w", name) else ""  # ".bar" comes after a word
    named = not_within + re.escape(name) + r"(?!\w)"
    called = named + r"\s*[(<]"
    patterns = [named] if re.match(MADE_FOR, symbol) else [called, named]
    for pattern in map(re.compile, patterns):
        for path in files:
            with contextlib.suppress(OSError), open(path, errors="replace") as file:
                for number, line in enumerate(file, 1):
                    if pattern.search(line) and not NO_CODE.match(line):
                        return path, number
    return None


def _last_name(symbol):
    """'scale' for 'void ns::scale<float>(float*, long)'."""
    name = re.sub(MADE_FOR, "", symbol)
    while (shorter := re.sub(r"<[^<>]*>|\([^()]*\)", "", name)) != name:
        name = shorter
    name = re.sub(r"( const)?( &&?)?$", "", name.replace("[abi:cxx11]", "")).strip()
    return re.split(r"::| ", name)[-1] or symbol
