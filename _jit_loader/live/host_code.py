"""Tells whether an edit of CUDA sources affects only code that is compiled for the device alone.

Host and device code must be of the same version. An edit within the bodies of __global__ and
__device__ functions cannot change host code. Any other edit, and any doubtful one, may.
"""

import re

from _jit_loader.cache import digest_of
from _jit_loader.cache.files import kept, read_bytes
from _jit_loader.cuda.declarations import split, tokens_of, with_members
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
# Outside of brackets, these mark a variable, member initializers or a trailing return type.
_NOT_A_PLAIN_FUNCTION = {"=", ":", "->", "~"}
# A function with one of these can be part of an expression that the host evaluates, or of a type.
_NOT_OF_DEVICE_ALONE = {
    *("constexpr", "consteval", "constinit", "auto", "decltype", "requires", "virtual"),
    *("override", "final", "enum", "union", "noexcept"),
}
# In a body: variables that outlive the call, lambdas for the host or the device, and launches.
_NOT_IN_A_BODY = re.compile(
    r"\bstatic (?!(?:constexpr|__shared__) )|\bthread_local\b"
    r"|__(?:device|host|global|constant|managed)__|<<<"
)
# A constant of device code, in tokens on lines of their own: no pointer, and of a plain type.
_CONSTANT = re.compile(
    r"(?m)^(?:__constant__|__device__\n(?:static\n)?const(?:expr)?|const(?:expr)?\n__device__)\n"
    r"(?:[\w:]+\n)*?(\w+)\n(?=[\[={;])"
)
# A line number that is no token of the preprocessed text, and a line of a raw string that looks
# like a directive there.
_HIDDEN = re.compile(r'__builtin_LINE|source_location|R"(.{,16}?)\((?s:(?!\)\1").)*?\n#')
# The number of a line, which cuda/preprocess.py keeps, in a message: after the name of a file or of
# a function. Other uses, such as an enum, may be code of the device too.
_IN_A_MESSAGE = re.compile(r'(?:"|__)\s*,\s*(?:static_cast<[\w ]+>\()?\s*__LINE__\[\](?=\s*[,)])')
_MARKER = re.compile(r"#\s*(\d+)")
_UNROLL = re.compile(r"#\s*pragma\s+unroll\b")
# The folder of a text of load_inline, which __FILE__ names, and the id that cuda/halves.py makes of
# the path, which is in the names of anonymous namespaces.
_OF_PATH = re.compile(rb"(?<=/)[0-9a-f]{20}(?=/cuda\.cu\b)|(?<=_GLOBAL__N__)[0-9a-f]{16}")
# How nvcc's own id begins, which may differ in each compilation.
_NVCCS_ID = re.compile(rb"_GLOBAL__N__[0-9a-f]{8}_")
# The device code, the sections that depend on its size, and the line numbers of the source.
_OF_DEVICE = re.compile(rb"\.nv_fatbin|\.symtab|\.strtab|\.shstrtab|(?:\.rela)?\.debug_\w+")


def host_code(source, texts, command):
    """Returns a digest that is the same for two versions that differ in device code alone.

    Arguments:
        source: the path of the .cu file.
        texts: {path: text} of it and of all the user's headers that it includes.
        command: the words of nvcc's command.

    Raises:
        NotUnderstood: it cannot be told what is host code.
    """
    if any(map(_HIDDEN.search, texts.values())):
        raise NotUnderstood("the host code may use line numbers, or a raw string has a line with #")
    found = preprocess(source, texts, command, architecture=None)
    is_plain = "__LINE__" not in _IN_A_MESSAGE.sub("", found.text)
    lines = [] if is_plain else line_numbers(source, texts, command)
    # It takes 10 ms for 800 lines; for the version before an edit the cache has it.
    code = kept("host-code", found.text, lambda: digest_of([*HostCode(found.text).tokens()]))
    return digest_of([code, found.before, lines])


def line_numbers(source, texts, command):
    """Returns the numbers of the lines that use theirs, as TORCH_CHECK does, in their order.

    The arguments are those of host_code.
    """
    found, number = [], 0
    for line in preprocess(source, texts, command, architecture=None).text.split("\n"):
        marker = _MARKER.match(line)
        number = int(marker[1]) - 1 if marker else number + 1
        found += [number] if "__LINE__" in line else []
    return found


def constants(source, texts, command):
    """Returns the names of the constants that only device code uses, so that nothing writes them.

    The arguments are those of host_code. An object that is const may have members that are mutable.
    """
    tokens = [*HostCode(preprocess(source, texts, command, architecture=None).text).tokens()]
    names = _CONSTANT.findall("\n".join(tokens)) if "mutable" not in tokens else ()
    return {name for name in names if tokens.count(name) == 1}


class HostCode:
    """The host code of a preprocessed source: all but some bodies.

    all_tokens: of the text. of_device: the declarations whose bodies only the device compiles.
    """

    def __init__(self, text):
        self.all_tokens = tokens_of(text)
        every = list(with_members(split(self.all_tokens)))
        self._marked = list(filter(_is_marked, every))
        self._declared = {each.name for each in every if not _is_marked(each)}
        self.of_device = list(filter(self._may_be_of_device, self._marked))
        while shared := self._shared_with_host():
            self.of_device = [each for each in self.of_device if each not in shared]

    def tokens(self):
        """Yields the tokens of the host code."""
        for token, is_removed in zip(self.all_tokens, self._removed()):
            if token.kind == "line" and _MARKER.match(token.text):
                continue
            if not is_removed or (token.kind == "line" and not _UNROLL.match(token.text)):
                yield token.text

    def _removed(self):
        """Returns for each token whether it is within the body of one of of_device."""
        is_removed = bytearray(len(self.all_tokens))
        for first, last in (declaration.body for declaration in self.of_device):
            is_removed[first + 1 : last] = b"\1" * (last - first - 1)
        return is_removed

    def _may_be_of_device(self, this):
        """Tells whether a declaration for the device has a body that cannot change host code."""
        if this.body is None or not this.name or _NOT_A_PLAIN_FUNCTION & {*this.words}:
            return False
        first, last = this.body
        head = {token.text for token in self.all_tokens[this.first : first]}
        body = " ".join(token.text for token in self.all_tokens[first : last + 1])
        return _NOT_OF_DEVICE_ALONE.isdisjoint(head) and not _NOT_IN_A_BODY.search(body)

    def _shared_with_host(self):
        """Returns the set of those in of_device that may be declared for the host as well."""
        is_removed = self._removed()
        for index in {each.name_index for each in self._marked} - {None}:
            is_removed[index] = True
        tokens = [t.text for t, removed in zip(self.all_tokens, is_removed) if not removed]
        triples = zip(["", "", *tokens], ["", *tokens], tokens)
        named = self._declared | {word for a, b, word in triples if not _is_foreign(a, b)}
        return {each for each in self.of_device if _may_be_declared_for_host(each, named)}


def _is_marked(this):
    """Tells whether a declaration is marked as one for the device alone."""
    marks = this.specifiers
    return "__host__" not in marks and not marks.isdisjoint(("__device__", "__global__"))


def _may_be_declared_for_host(this, names):
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
    return second == "->" or (first, second) == ("std", "::") or (second == "." and first != ".")


def host_digest(path, of_part=digest_of_bytes):
    """Returns a digest of an object without its device code.

    of_part: what counts of each of its sections; len if the code may have other numbers.

    Raises:
        NotUnderstood: nvcc itself has chosen the names of anonymous namespaces; see cuda/halves.py.
    """
    data = read_bytes(path)
    of_host = (each for each in sections_of(data).items() if not _OF_DEVICE.fullmatch(each[0]))
    found = {name: content(data, section) for name, section in of_host}
    if any(map(_NVCCS_ID.search, [*found, *found.values()])):
        raise NotUnderstood("the names of its unnamed namespaces differ in each compilation")
    parts = ((_OF_PATH.sub(b"", name), _OF_PATH.sub(b"", part)) for name, part in found.items())
    return digest_of(sorted((name, of_part(part)) for name, part in parts))
