"""Tells whether an edit of CUDA sources affects only code that is compiled for the device alone.

Host and device code must be of the same version. An edit within the bodies of __global__ and
__device__ functions cannot change host code; nor can one within an inline __host__ __device__
function whose name no host code mentions. Any other edit, and any doubtful one, may.
"""

import re

from _jit_loader.cache import digest_of
from _jit_loader.cuda.declarations import split, tokens_of
from _jit_loader.cuda.preprocess import NotUnderstood, preprocess
from _jit_loader.key.digests import digest_of_bytes
from _jit_loader.system.elf import content, sections_of

# CUDA declares these, and some others with f at the end, as __host__ __device__. A function that
# replaces one is host code too.
_OF_CUDA = re.compile(
    r"(?:a?(?:sin|cos|tan)h?|atan2|sincos|exp(?:2|10|m1)?|log(?:2|10|1p|b)?|pow|r?sqrt|r?cbrt|hypot"
    r"|erf(?:c?inv|cx?)?|normcdf(?:inv)?|(?:sin|cos|sincos)pi|[lt]gamma|j[01n]|y[01n]"
    r"|f(?:abs|ma|min|max|dim|mod|rexp)|modf|ldexp|scalbl?n|ilogb"
    r"|l?l?abs|l?l?round|l?l?rint|ceil|floor|trunc|nearbyint|remainder|remquo|copysign|nan"
    r"|nextafter|mem(?:cpy|set)|printf|malloc|free|clock)f?"
)
# Names of functions that the C++ library calls for types of the user's.
_OF_THE_LIBRARY = {
    *("swap", "begin", "end", "size", "data", "get", "max", "min", "next", "prev", "advance"),
    *("distance", "empty"),
}
# Outside of brackets, these mark a variable, member initializers or a trailing return type.
_NOT_A_PLAIN_FUNCTION = {"=", ":", "->", "~"}
# A function with one of these can be part of an expression that the host evaluates, or of a type.
_NOT_OF_DEVICE_ALONE = {
    *("constexpr", "consteval", "constinit", "auto", "decltype", "requires", "virtual"),
    *("override", "final", "enum", "union", "noexcept"),
}
# In a body: variables that outlive the call, lambdas for the host or the device, and launches.
_NOT_IN_A_BODY = {
    *("static", "thread_local", "__device__", "__host__", "__global__", "__constant__"),
    *("__managed__", "<<<"),
}
# A line number that is no token of the preprocessed text.
_LINES = re.compile(r"__builtin_LINE|source_location")
_MARKER = re.compile(r"#\s*\d")
_UNROLL = re.compile(r"#\s*pragma\s+unroll\b")
# The folder of a text of load_inline, which __FILE__ names, and nvcc's id of the path, which is in
# the names of anonymous namespaces.
_OF_PATH = re.compile(rb"(?<=/)[0-9a-f]{20}(?=/cuda\.cu\b)|(?<=_GLOBAL__N__)[0-9a-f]{16}")
# The device code, the sections that depend on its size, and the line numbers of the source.
_OF_DEVICE = re.compile(rb"\.nv_fatbin|\.symtab|\.strtab|\.shstrtab|(?:\.rela)?\.debug_\w+")


def host_code(source, texts, command):
    """Returns a text that is the same for two versions that differ in device code alone.

    Arguments:
        source: the path of the .cu file.
        texts: {path: text} of it and of all the user's headers that it includes.
        command: the words of nvcc's command.

    Raises:
        NotUnderstood: it cannot be told what is host code.
    """
    if any(map(_LINES.search, texts.values())):
        raise NotUnderstood("the host code may use line numbers")
    found = preprocess(source, texts, command, for_device=False)
    return "\n".join([*HostCode(found.text).tokens(), repr(found.before)])


class HostCode:
    """The host code of a preprocessed source: all but some bodies.

    all_tokens: of the text. of_device: the declarations whose bodies only the device compiles.
    """

    def __init__(self, text):
        self.all_tokens = tokens_of(text)
        self._all = list(_with_members(split(self.all_tokens)))
        self.of_device = [each for each in self._all if self._may_be_of_device(each)]
        while called := self._called():
            self.of_device = [each for each in self.of_device if each not in called]

    def tokens(self):
        """Yields the tokens of the host code."""
        for token, is_removed in zip(self.all_tokens, self._removed(self.of_device)):
            if token.kind == "line" and _MARKER.match(token.text):
                continue
            if not is_removed or (token.kind == "line" and not _UNROLL.match(token.text)):
                yield token.text

    def _removed(self, declarations):
        """Returns for each token whether it is within the body of a declaration."""
        is_removed = bytearray(len(self.all_tokens))
        for declaration in declarations:
            first, last = declaration.body
            is_removed[first + 1 : last] = b"\1" * (last - first - 1)
        return is_removed

    def _may_be_of_device(self, this):
        """Tells whether a declaration has a body that only the device compiles, if not called."""
        if this.space == "host" or this.body is None:
            return False
        if _NOT_A_PLAIN_FUNCTION & {*this.words} or _NOT_OF_DEVICE_ALONE & this.all_words:
            return False
        if not this.name or this.name in (*this.classes, self._qualifier(this)):
            return False
        tokens = [token.text for token in self.all_tokens[this.body[0] : this.body[1] + 1]]
        if not _NOT_IN_A_BODY.isdisjoint(tokens) or any(
            map(_is_lambda, tokens, tokens[1:], tokens[2:])
        ):
            return False
        if this.space == "device":
            return True
        # Host code may call a member or an operator without its name.
        is_member = bool(this.classes) or self._qualifier(this) is not None
        if is_member or this.name.startswith("operator") or this.name in _OF_THE_LIBRARY:
            return False
        is_template = this.is_template and self.all_tokens[this.first + 2].text != ">"
        return is_template or not {"inline", "__inline__", "static"}.isdisjoint(this.words)

    def _qualifier(self, this):
        """Returns A for a function A::f, otherwise None."""
        index = this.name_index
        if index is None or self.all_tokens[index - 1].text != "::":
            return None
        return self.all_tokens[index - 2].text

    def _called(self):
        """Returns the set of the declarations in of_device that host code may call."""
        is_removed, declared = self._removed(self.of_device), set()
        for each in self._all:
            if each.space == "both":
                declared.add(each.name)
            if each.space != "host" and each.name_index is not None:
                is_removed[each.name_index] = True
        tokens = [t.text for t, removed in zip(self.all_tokens, is_removed) if not removed]
        before = zip(["", "", *tokens], ["", *tokens])
        named = {text for text, two in zip(tokens, before) if not _is_foreign(*two)}
        return {
            each
            for each in self.of_device
            if (each.space == "both" and (each.name in named or _OF_CUDA.fullmatch(each.name)))
            or (each.space == "device" and _is_declared_for_host(each, named | declared))
        }


def _with_members(declarations):
    for declaration in declarations:
        yield declaration
        yield from _with_members(declaration.members or ())


def _is_declared_for_host(this, names):
    """Tells whether a function of the device may also be declared as one of the host.

    A kernel cannot; nor can a member that is defined in its class, which has no other declaration.
    Host code may call an operator without its name.
    """
    is_member = bool(this.classes) and "friend" not in this.words
    if "__global__" in this.words or is_member:
        return False
    is_operator = this.name.startswith("operator")
    return is_operator or this.name in names or _OF_CUDA.fullmatch(this.name) is not None


def _is_foreign(first, second):
    """Tells whether a word after these two tokens is a member, or a name of the C++ library."""
    is_member = second == "->" or (second == "." and first != ".")
    return is_member or (second == "::" and first == "std")


def _is_lambda(before, text, after):
    """Tells whether a bracket begins a lambda, which nvcc writes into the host code as well."""
    if text != "[" or "[" in (before, after):  # [[ begins an attribute
        return False
    is_index = before in (")", "]") or re.fullmatch(r"[^\W\d]\w*", before)
    return not is_index or before in ("return", "else", "do", "case")


def host_digest(path):
    """Returns a digest of an object without its device code."""
    with open(path, "rb") as file:
        data = file.read()
    found = {
        _OF_PATH.sub(b"", name): digest_of_bytes(_OF_PATH.sub(b"", content(data, section)))
        for name, section in sections_of(data).items()
        if not _OF_DEVICE.fullmatch(name)
    }
    return digest_of(sorted(found.items()))
