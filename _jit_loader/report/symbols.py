"""Demangles the symbols in errors, and finds the lines that use them."""

import contextlib
import ctypes
import re

# The beginning of a symbol that the compiler makes for a class or a variable.
GENERATED = r"^(?:vtable|typeinfo|typeinfo name|VTT|guard variable) for "
NO_CODE = re.compile(r"\s*(//|\*|/\*|#\s*include)")


def demangled(name):
    """Returns 'scale(float*, long)' for '_Z5scalePfl'; a name that is not mangled is unchanged."""
    if not name.startswith("_Z"):
        return name
    with contextlib.suppress(OSError):
        library = ctypes.CDLL("libstdc++.so.6")  # always present: PyTorch needs it
        library.__cxa_demangle.restype = ctypes.c_void_p
        status = ctypes.c_int()
        found = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
        if found:
            text = ctypes.string_at(found).decode(errors="replace")
            ctypes.CDLL(None).free(ctypes.c_void_p(found))
            return text
    return name


def first_use(symbol, files):
    """Returns (path, line number) of a symbol's first call or declaration in files, or None.

    If there is none, the first other occurrence is returned. Calls and declarations come first,
    because the name of an op also occurs in strings and names of headers.
    """
    name = _last_name(symbol)
    not_within = r"(?<!\w)" if re.match(r"\w", name) else ""  # ".bar" follows a word
    named = not_within + re.escape(name) + r"(?!\w)"
    called = named + r"\s*[(<]"
    patterns = [named] if re.match(GENERATED, symbol) else [called, named]
    for pattern in map(re.compile, patterns):
        for path in files:
            with contextlib.suppress(OSError), open(path, errors="replace") as file:
                for number, line in enumerate(file, 1):
                    if pattern.search(line) and not NO_CODE.match(line):
                        return path, number
    return None


def _last_name(symbol):
    """Returns 'scale' for 'void ns::scale<float>(float*, long)'."""
    name = re.sub(GENERATED, "", symbol)
    while (shorter := re.sub(r"<[^<>]*>|\([^()]*\)", "", name)) != name:
        name = shorter
    name = re.sub(r"( const)?( &&?)?$", "", name.replace("[abi:cxx11]", "")).strip()
    return re.split(r"::| ", name)[-1] or symbol
