"""Finds the functions in CUDA source, and the bodies that are compiled for the device alone.

This is not a parser: it recognises plain definitions and gives up on the rest. A body that it does
not recognise counts as host code.
"""

import functools
import re
from itertools import pairwise
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<directive>^[ \t]*\#(?:\\\n|/\*.*?\*/|//(?:\\\n|[^\n])*|"(?:\\.|[^"\\\n])*"|[^\n])*)
  | \n | [^\S\n]+ | //(?:\\\n|[^\n])* | /\*.*?\*/
  | (?P<text>(?:u8|[uUL])?R"(?P<end>[^\s()\\]{0,16})\(.*?\)(?P=end)"
           | (?:u8|[uUL])?"(?:\\.|[^"\\\n])*" | (?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
  | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
  | (?P<word>[^\W\d]\w*)
  | (?P<mark><<<|>>>|::|->|\+\+|--|&&|.)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
DEFINITION = re.compile(r"#\s*(?:define|undef)\s+(\w+)(.*)", re.DOTALL)
# A literal, or a # that makes a text. ## makes names that are not in the source.
_STRINGIZE = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?<!#)#(?!#)""")
_INCLUDE = re.compile(r"#\s*include\b")
_CONDITIONAL = re.compile(r"#\s*(if|ifdef|ifndef|else|elif|elifdef|elifndef|endif)\b")
# A backslash with spaces before the line break or within the marks of a comment, digraphs of braces
# and '#', and trigraphs.
_STRANGE = re.compile(r"\\[ \t\r\f\v]+\n|[*/]\\\n[*/]|<%|%>|%:|\?\?[<>=/'()!-]")

# A backslash outside of directives; parts of an unterminated literal or comment.
_NOT_MARKS = ("\\", "$", '"', "'", "`", "@", "#")

_OPEN, _CLOSE = {"(": ")", "[": "]", "{": "}"}, (")", "]", "}")
_ACCESS = ["public"], ["private"], ["protected"]
_UNSURE = "\0"  # in a declaration whose beginning is not known
_SPACES = ("__device__", "__global__")
_HOST = ("__host__", "host", "__location__", "__annotate__")  # the spellings of __host__
# Outside of brackets, these mark a variable, member initializers or a trailing return type.
_NOT_A_PLAIN_FUNCTION = {"=", ":", "->"}
# A function with one of these can be part of an expression that the host evaluates, or of a type.
_NOT_OF_DEVICE_ALONE = {
    *(*_HOST, "constexpr", "consteval", "constinit", "auto", "decltype", "requires", "virtual"),
    *("override", "final", "enum", "union", "noexcept", _UNSURE),
}
_NOT_OF_HOST_ALONE = {
    *(*_SPACES, "constexpr", "consteval", "auto", "decltype", "requires", _UNSURE),
}
# In a body: variables that outlive the call, lambdas for the host or the device, and launches.
_NOT_IN_A_BODY = {
    *("static", "thread_local", "__device__", "__host__", "__global__", "__constant__"),
    *("__managed__", "<<<"),
}
# Words before parentheses that are not the parameters of a function.
_NOT_NAMES = {
    *("alignas", "noexcept", "decltype", "throw", "if", "for", "while", "switch", "catch"),
}
_NEVER_MACROS = {
    *("__host__", "__device__", "__global__", "__constant__", "__managed__", "__shared__"),
    *("namespace", "class", "struct", "union", "enum", "template", "operator", "static", "extern"),
    *("constexpr", "auto", "decltype", "const", "if", "for", "while", "return", "inline", "void"),
}


class NotUnderstood(ValueError):
    """The source has something that this module does not understand."""


class Body(NamedTuple):
    """A function's body with its braces, text[start:end].

    kind: "device" if only the device compiles it, "host" if only the host does, "both" if the
    host's object tells whether the host uses it (see host_code.py), else "other".
    name: the function's name, which is looked up in a Scan: "f"; for the device "operator()", or
    "operator+" for any other operator; "operator" for both. None for a kernel, for a qualified name
    such as A::f, and for a member of the device alone that is defined in its class, since it has no
    other declaration.
    """

    kind: str
    start: int
    end: int
    name: str | None


class Token(NamedTuple):
    text: str
    start: int


def macros_in(texts):
    """Returns the names of all macros that texts define.

    Raises:
        NotUnderstood: a macro hides a brace or an operator, or has the name of a keyword.
    """
    names = set()
    for text in texts:
        for token in tokens_of(text):
            define = DEFINITION.match(token.text)
            if define is None:
                continue
            names.add(define[1])
            if define[1] in _NEVER_MACROS or re.search(r"\boperator\b", define[2]):
                raise NotUnderstood(f"the macro {define[1]}")
            body = define[2].replace("\\\n", "")
            _check_balanced(_STRINGIZE.sub(lambda match: match[1] or "", body))
    return names


@functools.lru_cache(maxsize=64)
def tokens_of(text):
    """Returns the tokens of a source without comments, as a tuple; a directive is one token."""
    if _STRANGE.search(text):
        raise NotUnderstood("a digraph, or a space after a backslash")
    tokens = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind is None:
            continue
        found, start = match[kind], match.start()
        if kind == "directive":
            found = found.lstrip()
        elif kind == "mark" and (found in _NOT_MARKS or text.startswith("/*", start)):
            raise NotUnderstood(f"a {found} at {start}")
        tokens.append(Token(found, start))
    return tuple(tokens)


class Scan(NamedTuple):
    """The functions that a source has in namespaces and classes.

    bodies: the Bodies of functions, in their order.
    declared: the words of all declarations, except those that are clearly for the device alone.
    mentioned: the words of all code that may be host code: of declared, of the bodies that are not
    of the device alone with their headers, and of macros. A function that is defined with
    __device__ is host code as well if another declaration, or the template that it specializes, has
    __host__. Then that declaration and the calls by host code mention its name.
    of_device: the words of the declarations that have __device__.
    """

    bodies: list
    declared: set
    mentioned: set
    of_device: set


def scan(text, macros, traceable=()):
    """Returns the Scan of a source.

    macros: the names of all macros that the source may use. traceable: those of functions that
    an object has only if the host uses them; see live/host_code.py.

    Raises:
        NotUnderstood: braces, brackets or conditions do not match.
    """
    return _scan(text, frozenset(macros), frozenset(traceable))


@functools.lru_cache(maxsize=64)  # of most sources, an edit changes nothing: 30 ms less for add2
def _scan(text, macros, traceable):
    return _Scanner(tokens_of(text), macros, traceable).scan()


def without_host_bodies(text, macros, of_device, replacement):
    """Returns the source with the bodies of host functions replaced; lines keep their numbers.

    of_device: the words of Scan.of_device of all sources. A function whose declaration alone has
    __device__ keeps its body, as do members that are defined outside of their class.
    """
    parts, position = [], 0
    for body in scan(text, macros).bodies:
        if body.kind == "host" and body.name is not None and body.name not in of_device:
            lines = "\n" * text.count("\n", body.start, body.end)
            parts += [text[position : body.start], replacement, lines]
            position = body.end
    return "".join([*parts, text[position:]])


class _Scanner:
    """Scans the tokens of a source once."""

    def __init__(self, tokens, macros, traceable):
        self._tokens, self._macros, self._traceable = tokens, macros, traceable
        self._conditions = []  # of each #if that is open: the state before it
        self._found, self._declared, self._mentioned, self._of_device = [], set(), set(), set()

    def scan(self):
        scopes, header, closers = [], [], []
        index = 0
        while index < len(self._tokens):
            token, state = self._tokens[index], (len(scopes), len(closers))
            text = token.text
            if text[0] == "#" and len(text) > 1:
                self._directive(text, state, header)
            elif text == "{" and not closers:
                kind = self._kind(header)
                if kind == "scope":
                    self._mentioned |= _words(header)
                    scopes.append("class" if _is_class(header) else "namespace")
                    header = []
                else:
                    end = self._skip(index)
                    is_member = scopes[-1:] == ["class"] and "friend" not in header
                    body = kind and self._body(kind, index, end, header, is_member)
                    if body is None or body.kind != "device":
                        self._mentioned |= _words(header)
                        self._mentioned |= self._words_between(index, end)
                    if body is not None:
                        self._found.append(body)
                    header = [_UNSURE] if body is None else []
                    index = end
            elif text == "{":
                end = self._skip(index)
                self._mentioned |= self._words_between(index, end)
                index = end
            elif text == "}" and not closers:
                if not scopes:
                    raise NotUnderstood("a } without {")
                header = [_UNSURE] if scopes.pop() == "class" else []
            elif (text == ";" and not closers) or (text == ":" and header in _ACCESS):
                self._declare(header)
                header = []
            else:
                _bracket(text, closers)
                header.append(text)
            index += 1
        if scopes or closers or self._conditions:
            raise NotUnderstood("a { or #if without its end")
        mentioned = self._mentioned | self._declared
        return Scan(self._found, self._declared, mentioned, self._of_device)

    def _declare(self, header):
        """Records the words of a declaration."""
        is_of_device = not {*_SPACES, *self._macros}.isdisjoint(header)
        if is_of_device:
            self._of_device |= _words(header)
        if not is_of_device or {*_HOST, "friend", _UNSURE, *self._macros} & {*header}:
            self._declared |= _words(header)

    def _skip(self, index):
        """Returns the index of the } that ends the block at an index."""
        closers = []
        for number in range(index, len(self._tokens)):
            text = self._tokens[number].text
            if text[0] == "#" and len(text) > 1:
                self._directive(text, ("block", index, len(closers)), [])
            else:
                _bracket(text, closers)
            if not closers:
                return number
        raise NotUnderstood("a { without }")

    def _words_between(self, first, last):
        return _words([token.text for token in self._tokens[first:last]])

    def _body(self, kind, first, last, header, is_member):
        name = _name(header)
        if kind == "device" and is_member:
            name = None
        elif kind == "device" and name == "operator":
            name = _operator(header[header.index(name) + 1])
        tokens = self._tokens[first : last + 1]
        if kind in ("device", "both"):
            texts = [token.text for token in tokens]
            lambdas = map(_is_lambda, texts, texts[1:], texts[2:])
            if not _NOT_IN_A_BODY.isdisjoint(texts) or any(lambdas):
                kind = "other"
        return Body(kind, tokens[0].start, tokens[-1].start + 1, name)

    def _directive(self, text, state, header):
        """Checks that each branch of a condition is a complete piece of code."""
        if header and _INCLUDE.match(text):
            raise NotUnderstood("an #include within a declaration")
        if define := DEFINITION.match(text):
            self._mentioned.update(re.findall(r"\w+", define[2].replace("\\\n", "")))
        condition = _CONDITIONAL.match(text)
        if condition is None:
            return
        unsure = bool(header)
        if condition[1].startswith("if"):
            self._conditions.append((state, unsure))
        else:
            if not self._conditions:
                raise NotUnderstood(f"#{condition[1]} without #if")
            before, unsure_before = self._conditions[-1]
            if before != state:
                raise NotUnderstood("a condition that contains a part of a block")
            unsure = unsure or unsure_before
            if condition[1] == "endif":
                self._conditions.pop()
        if unsure:
            header.append(_UNSURE)

    def _kind(self, header):
        """Returns the kind of the block after a header: "scope", a Body's kind, or None."""
        if header[:1] == ["namespace"] or header[:2] == ["inline", "namespace"]:
            return "scope"
        if header == ["extern", '"C"'] or header == ["extern", '"C++"']:
            return "scope"
        prefix, head = _split_template(header)
        if _UNSURE not in header and _is_class(header):
            return "scope"
        if not _ends_as_function(head):
            return None
        outside = _outside_of_brackets(head)
        if self._traceable & {*outside}:
            if (self._macros - self._traceable) & {*prefix, *outside}:
                return "other"
            plain = not _NOT_A_PLAIN_FUNCTION & {*outside} and _name(header) is not None
            return "both" if plain and not _NOT_OF_DEVICE_ALONE & {*prefix, *head} else "other"
        if self._macros & {*prefix, *outside}:
            return "other"
        if any(space in outside for space in _SPACES):
            plain = not _NOT_A_PLAIN_FUNCTION & set(outside)
            plain = plain and ("__global__" in outside or _name(header) is not None)
            return "device" if plain and not _NOT_OF_DEVICE_ALONE & {*prefix, *head} else "other"
        plain = not {"=", "->"} & set(outside) and prefix != ["template", "<", ">"]
        return "host" if plain and not _NOT_OF_HOST_ALONE & {*prefix, *head} else "other"


def _is_lambda(before, text, after):
    """Tells whether a bracket begins a lambda, which nvcc writes into the host code as well."""
    if text != "[" or "[" in (before, after):  # [[ begins an attribute
        return False
    is_index = before in (")", "]") or re.fullmatch(r"[^\W\d]\w*", before)
    return not is_index or before in ("return", "else", "do", "case")


def _words(texts):
    """Returns a set of tokens, with the names of operators as in a Body.

    A member that is accessed (x.f, x->f) or a name of the C++ library (std::f) is no function of
    this project that is outside of a class.
    """
    triples = zip(["", "", *texts], ["", *texts], texts)
    words = {text for first, second, text in triples if not _is_foreign(first, second)}
    return words | {_operator(sign) for word, sign in pairwise(texts) if word == "operator"}


def _is_foreign(first, second):
    """Tells whether a word after these two tokens is a member, or a name of the C++ library."""
    is_member = second == "->" or (second == "." and first != ".")  # ... is three tokens
    return is_member or (first == "std" and second == "::")


def _operator(sign):
    """Returns a name for operators without their sign: `operator not` is `operator!`."""
    return "operator()" if sign == "(" else "operator+"


def _bracket(text, closers):
    if text in _OPEN:
        closers.append(_OPEN[text])
    elif text in _CLOSE and (not closers or closers.pop() != text):
        raise NotUnderstood(f"a {text} without its beginning")


def _check_balanced(text):
    closers = []
    for token in tokens_of(" " + text):
        _bracket(token.text, closers)
    if closers:
        raise NotUnderstood("a macro with a part of a block")


def _split_template(header):
    """Returns (the tokens of template <...>, the others) of a declaration."""
    end = 0
    while header[end : end + 2] == ["template", "<"]:
        depth, closers = 0, []
        for index in range(end + 1, len(header)):
            text = header[index]
            if not closers and text in ("<", "<<<", ">", ">>>"):
                depth += len(text) if text[0] == "<" else -len(text)
                if depth <= 0:
                    break
            _bracket(text, closers)
        end = index + 1
    return header[:end], header[end:]


def _outside_of_brackets(head):
    found, depth = [], 0
    for text in head:
        depth -= text in _CLOSE
        if depth == 0:
            found.append(text)
        depth += text in _OPEN
    return found


def _is_class(header):
    """Tells whether a header begins the definition of a class, not a function or a variable."""
    _, head = _split_template(header)
    return head[:1] in (["struct"], ["class"]) and not {"(", "=", ";", _UNSURE} & set(head)


def _name(header):
    """Returns the name of a function that is defined: f for f<int>; None for a kernel and A::f."""
    _, head = _split_template(header)
    if "__global__" in head:
        return None
    end, depth = _parameters(head) or 0, 0
    if "operator" in head:
        end = head.index("operator") + 1
    while end and (depth or head[end - 1] == ">"):
        end -= 1
        depth += (head[end] == ">") - (head[end] == "<")
    if any(head[:end].count(opener) != head[:end].count(closer) for opener, closer in ("<>", "()")):
        return None  # the word is within arguments: f<(a < 2)>, f(T x = &A::operator())
    before, name = head[end - 2 : end] if end > 1 else ("::", "")
    is_name = name == "operator" or (before != "::" and re.fullmatch(r"[^\W\d]\w*", name))
    return name if is_name else None


def _ends_as_function(head):
    """Tells whether a declaration ends with a function's parameters and qualifiers."""
    index = _parameters(head)
    if index is None:
        return False
    before = head[index - 1] if index else ""
    is_name = re.fullmatch(r"[^\W\d]\w*", before) and not before.startswith("__")
    is_name = is_name and before not in _NOT_NAMES
    return bool(is_name or before == ">" or "operator" in head[:index])


def _parameters(head):
    """Returns the index of the ( of the parameters at the end of a declaration, or None."""
    end = len(head)
    while end and head[end - 1] in ("const", "noexcept", "override", "final", "&"):
        end -= 1
    if end < 3 or head[end - 1] != ")":
        return None
    depth = 0
    for index in range(end - 1, -1, -1):
        depth += head[index] in _CLOSE
        depth -= head[index] in _OPEN
        if depth == 0:
            return index
    return None
