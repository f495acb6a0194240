"""Leaves out of preprocessed CUDA source what NVRTC cannot compile: the host's functions and types.

A function that the device may call, a variable of the device and a constant stay. A declaration
without __device__ may need headers that NVRTC does not have, so NVRTC decides: what it reports an
error in is removed. A declaration or a deleted function remains, so that a call is an error and no
other overload is chosen.
"""

import re

from _jit_loader.cache import digest_of
from _jit_loader.cuda.declarations import CLASSES, split, tokens_of, with_members
from _jit_loader.cuda.nvrtc import NvrtcError, compile_program
from _jit_loader.cuda.preprocess import INCLUDE

_OF_DEVICE = {"__device__", "__global__", "__constant__", "__shared__", "__managed__"}
_CONSTANT = {"constexpr", "consteval", "constinit", "const"}
_TYPES = {"typedef", "using", "static_assert", "friend", "namespace", "concept", "enum"}
_MARKER = re.compile(r'^# (\d+ "(?:[^"\\]|\\.)*")', re.MULTILINE)
_ERROR = re.compile(r"^in\.cu\((\d+)\): (?:catastrophic )?error", re.MULTILINE)
# In a function: variables that outlive the call, and those that are not constant.
_STATIC = re.compile(r"\bstatic (?!__shared__ )")
_VARIABLE = re.compile(rf"{_STATIC.pattern}(?!constexpr |const [^*&]*?[=\[{{;])")
ENTIRELY = " entirely"  # after the key of a declaration of which nothing stays


class DeviceText:
    """The device code of a preprocessed source, as text."""

    def __init__(self, text, anonymous=""):
        """anonymous: nvcc's name of anonymous namespaces; NVRTC has another for each process."""
        if anonymous:
            named = "namespace N {} using namespace N; namespace N {".replace("N", anonymous)
            text = re.sub(r"\bnamespace\s*\{", named, text)
        self._text, self._tokens = text, tokens_of(text)
        declarations, self._kinds = split(self._tokens), {}
        self._marked = {d.name for d in with_members(declarations) if d.specifiers & _OF_DEVICE}
        self._all = list(self._with_members(declarations))

    def may_have_state(self):
        """Tells whether the first use of a function or a template may add a variable.

        Each kernel is compiled by itself, and would have its own; host code registers a template's.
        """
        static = _STATIC if any(t.text == "mutable" for t in self._tokens) else _VARIABLE
        for each in (each for each in self._all if each.specifiers & _OF_DEVICE):
            first, last = each.body or (each.first, each.first)
            text = " ".join(token.text for token in self._tokens[first : last + 1])
            is_variable = text == "template" and not (each.has_parameters or each.members)
            if is_variable or static.search(text):
                return True
        return False

    def _with_members(self, declarations):
        """Yields the declarations that may be left out with their members, in their order."""
        for each in declarations:
            kind = self._kinds[each] = self._kind(each)
            yield each
            if kind != "host":
                yield from self._with_members(each.members or ())

    def _kind(self, this):
        """Returns "device" if NVRTC has to compile a declaration, "host" if not, else "unknown"."""
        words = this.specifiers
        if this.members is not None:  # of a class, not to be left out if it has a data member
            is_data = this.classes and (not this.name or this.words[-1] != "{}")
            return "device" if is_data else "unknown"
        if words & _OF_DEVICE:
            return "device"
        if "__host__" in words:
            return "host"
        first = this.words[0]
        is_class = first in CLASSES and not (this.has_parameters or "=" in this.words)
        if is_class or first in _TYPES or {"constexpr", "consteval"} & words:
            return "unknown"
        if this.classes:
            is_function = this.has_parameters and "virtual" not in words
            changes_layout = this.name == "operator=" or (this.body is None and _is_special(this))
            return "unknown" if is_function and not changes_layout else "device"
        if this.has_parameters:
            return "unknown" if this.name in self._marked else "host"
        return "unknown" if words & _CONSTANT and "extern" not in words else "host"

    def text(self, removed=()):
        """Returns the text for NVRTC, in which lines are those of the user's files.

        removed: the keys of the declarations to leave out; see removals.
        """
        return _for_nvrtc("".join(part for part, _ in self._parts(removed)), r"#line \1")

    def numbered_text(self, removed):
        """Returns the text with lines of its own; each declaration begins a new one."""
        return _for_nvrtc("".join(f"\n{part}" for part, _ in self._parts(removed)), "")

    def removals(self, log, removed):
        """Returns the keys of more declarations to leave out, because of NVRTC's errors.

        log: what NVRTC prints for the numbered_text of removed.
        """
        starts = []  # where the lines of that text are in the source
        for part, start in self._parts(removed):
            starts += [start, *(start + match.end() for match in re.finditer("\n", part))]
        unknown = [each for each in self._all if self._kinds[each] == "unknown"]
        found = set()
        for line in map(int, _ERROR.findall(log)):
            place = starts[line - 2]
            before = [each for each in unknown if self._tokens[each.first].start <= place]
            around = [each for each in before if place < self._tokens[each.last].end]
            if around:
                key = self._key(around[-1])
                found.add(key + ENTIRELY if key in removed else key)
        return found - {*removed}

    def _parts(self, removed):
        """Yields the parts of the text and where they are in the source; one per declaration."""
        position = start = 0
        text = ""
        for each in self._all:
            begin, end = self._tokens[each.first].start, self._tokens[each.last].end
            if begin < position:  # a member of what is left out
                continue
            yield text + self._text[position:begin], start
            text, start = "", begin
            position, key = begin, self._key(each)
            is_removed = self._kinds[each] == "unknown" and key in removed
            if self._kinds[each] == "host" or is_removed:
                if is_removed and key + ENTIRELY not in removed:
                    text = self._declared(each)
                elif _is_special(each):  # a class without it may have another layout
                    text = f"{each.classes[-1]}(struct jit_loader_of_the_host_{each.first});"
                # The line breaks and linemarkers of what is left out stay.
                lines = self._text[begin:end].split("\n")
                text += "\n".join(line if line.startswith("# ") else "" for line in lines)
                position = end
        yield text + self._text[position:], start

    def _declared(self, this):
        """Returns what stays of a declaration that is left out."""
        start = self._tokens[this.first].start
        head = self._text[start : self._tokens[this.head_end].start] if this.head_end else ""
        head = " ".join(_MARKER.sub("", head).split())
        if this.members is not None or this.words[0] in CLASSES:
            return f"{head};" if head else ""
        if this.body is not None:
            return f"{head} = delete;"
        if this.words[0] == "using" and "=" in this.words:
            words = self._text[start : self._tokens[this.last].end].partition("using")
            return f"{words[0]}struct {this.words[1]};"
        return f"struct {this.words[-1]};" if this.words[0] == "typedef" else ""

    def _key(self, declaration):
        """Returns a digest of a declaration's text."""
        start, end = self._tokens[declaration.first].start, self._tokens[declaration.last].end
        return digest_of(self._text[start:end])


def _for_nvrtc(text, marker):
    return _MARKER.sub(marker, text).replace(INCLUDE, "#include ")


def _is_special(this):
    """Tells whether a member is a constructor or the destructor."""
    return this.has_parameters and this.name in this.classes[-1:]


def without_errors(program, code, removed, expressions=()):
    """Returns removed and the keys of the other declarations in which NVRTC finds errors.

    program: the nvrtc.Program without its source. code: its DeviceText.
    """
    program = program._replace(path="in.cu", options=[*program.options, "-fdevice-syntax-only"])
    while True:
        try:
            compile_program(program._replace(source=code.numbered_text(removed)), expressions)
            return removed
        except NvrtcError as error:
            if not (more := code.removals(str(error), removed)):
                return removed
            removed = sorted({*removed, *more})
