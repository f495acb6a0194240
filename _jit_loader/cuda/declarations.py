"""Splits preprocessed CUDA source into the declarations of its namespaces and classes.

g++ has expanded macros and removed comments and conditions, so tokens are enough. This is not a
parser of C++: what a declaration is, its first words and its brackets tell.
"""

import re

from _jit_loader.cuda.preprocess import NotUnderstood

_TOKEN = re.compile(
    r"""
    (?P<line>^[ \t]*\#[^\n]*) | \s+
  | (?P<text>(?:(?:u8|[uUL])?R"(?P<end>[^\s()\\]{0,16})\(.*?\)(?P=end)"
           | (?:u8|[uUL])?"(?:\\.|[^"\\\n])*" | (?:u8|[uUL])?'(?:\\.|[^'\\\n])+')\w*)
  | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
  | (?P<word>[^\W\d][\w$]*)
  | (?P<mark>::|->|\+\+|--|&&|\|\||<<<|<<=?|<=|>=|<%|%>|<:(?!:)|:>|.)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_NAME = re.compile(r"[^\W\d][\w$]*")
_OPEN, _CLOSE = {"(": ")", "[": "]", "{": "}"}, (")", "]", "}")
_ACCESS = ("public", "private", "protected")
CLASSES = {"struct", "class", "union", "enum"}
# Words before parentheses that are not the parameters of a function.
_NOT_NAMES = {
    *("__attribute__", "alignas", "decltype", "noexcept", "explicit", "throw", "requires"),
    *("__declspec", "asm", "__asm__", "typeof", "__typeof__", "__attribute"),
}
_ATTRIBUTES = {"host": "__host__", "device": "__device__", "global": "__global__"}


class Token:
    """A token: text[start:end]. kind: "line" for a directive, "text", "number", "word", "mark"."""

    __slots__ = ("end", "kind", "start", "text")

    def __init__(self, kind, text, start, end):
        self.kind, self.text, self.start, self.end = kind, text, start, end


class Declaration:
    """A declaration, of the tokens first to last.

    Attributes:
        words: its tokens outside of brackets, without those of templates: "()" stands for
            parentheses, and also "[]", "{}" and "<>".
        has_parameters: whether it has the parentheses of a function, or of a variable's arguments.
        name: "f", "operator+", or "".
        name_index: the token of its name, or the word operator; None if it has none.
        head_end: the token after its head, where its body, its base classes or its initializers
            begin.
        body: (first, last) token of a function's body with the braces, or None.
        members: the Declarations of a class, or None.
        classes: the names of the classes it is in, outermost first.
    """

    def __init__(self, first, classes):
        self.first, self.last, self.words, self.classes = first, first, [], classes
        self.has_parameters = False
        self.name, self.name_index, self.head_end = "", None, None
        self.body = self.members = None

    @property
    def specifiers(self):
        """The set of its words before an initializer."""
        end = self.words.index("=") if self.is_assigned else len(self.words)
        return {*self.words[:end]}

    @property
    def is_assigned(self):
        """Whether its words have a =, after which an initializer follows."""
        return "=" in self.words

    @property
    def is_of_class(self):
        """Whether its words have struct, class, union or enum."""
        return not CLASSES.isdisjoint(self.words)

    @property
    def last_word(self):
        return self.words[-1] if self.words else ""


def tokens_of(text):
    """Returns the tokens of preprocessed text, as a list."""
    return [Token(m.lastgroup, m[0], *m.span()) for m in _TOKEN.finditer(text) if m.lastgroup]


def split(tokens):
    """Returns the Declarations of tokens; namespaces and extern "C" are no declarations.

    Raises:
        NotUnderstood: brackets do not match, or a declaration has no end.
    """
    return _Splitter(tokens).split(0, len(tokens), None)


def with_members(declarations):
    """Yields Declarations and the members of classes among them."""
    for declaration in declarations:
        yield declaration
        yield from with_members(declaration.members or ())


class _Splitter:
    def __init__(self, tokens):
        self._tokens, self._closers = tokens, _match(tokens)

    def split(self, index, end, classes):
        """Returns the declarations of tokens[index:end]; classes: None in a namespace."""
        found = []
        while index < end:
            token = self._tokens[index]
            if token.kind == "line" or token.text == ";":
                index += 1
            elif classes and token.text in _ACCESS and self._text(index + 1) == ":":
                index += 2
            elif (block := self._namespace(index)) is not None:
                found += self.split(block + 1, self._closers[block], None)
                index = self._closers[block] + 1
            else:
                found.append(self._declaration(index, end, classes))
                index = found[-1].last + 1
        return found

    def _text(self, index):
        return self._tokens[index].text if index < len(self._tokens) else ""

    def _namespace(self, index):
        """Returns the { of a namespace or of extern "C" that begins here, or None."""
        index += self._text(index) == "inline"
        if self._text(index) == "extern" and self._tokens[index + 1].kind == "text":
            return index + 2 if self._text(index + 2) == "{" else None
        if self._text(index) != "namespace":
            return None
        while self._text(index) not in ("{", ";", "=", ""):
            index += 1
        return index if self._text(index) == "{" else None

    def _declaration(self, index, end, classes):
        """Returns the first Declaration of tokens[index:end]."""
        this = Declaration(index, classes or ())
        while self._text(index) == "template" and self._text(index + 1) == "<":
            index = self._skip_angles(index + 1) + 1
        while index < end and this.body is None and self._text(index) != ";":
            index = self._add(this, index) + 1
        if this.body is not None:
            index = this.body[1]
            while self._text(index + 1) == "catch":  # of a function's try
                index = self._closers[self._closers[index + 2] + 1]
        elif index >= end:
            raise NotUnderstood(f"a declaration without end: {' '.join(this.words[:8])}")
        this.last = index
        return this

    def _add(self, this, index):
        """Adds a token, or brackets with what is in them; returns the index of the last token."""
        text = self._text(index)
        if self._tokens[index].kind == "line":
            return index
        if text == "operator" and not this.is_assigned and not this.has_parameters:
            return self._add_operator(this, index)
        if text == "<" and not this.is_assigned and re.match(r"\w", this.last_word):
            this.words.append("<>")
            return self._skip_angles(index)
        if text in ("(", "["):
            self._add_parentheses(this, index)
        elif text == "{":
            self._add_braces(this, index)
        else:
            if text == ":" and (this.has_parameters or this.is_of_class):
                this.head_end = this.head_end or index
            this.words.append(text)
        return self._closers.get(index, index)

    def _add_parentheses(self, this, index):
        """Adds parentheses, which may begin the parameters of a function, or square brackets."""
        text, before = self._text(index), this.last_word
        if text == "(" and not this.is_assigned and not this.has_parameters:
            this.has_parameters = bool(this.words) and before not in _NOT_NAMES
            if this.has_parameters and not this.name:
                self._set_name(this, index)
        this.words.append(text + _OPEN[text])
        if before in ("__attribute", "__attribute__") or text + self._text(index + 1) == "[[":
            inside = self._tokens[index : self._closers[index]]
            this.words += [_ATTRIBUTES[t.text] for t in inside if t.text in _ATTRIBUTES]

    def _add_braces(self, this, index):
        """Adds the members of a class, the body of a function, or an initializer."""
        end, before = self._closers[index], this.last_word
        is_class = this.is_of_class and not this.has_parameters and not this.is_assigned
        # Of a member, in a constructor's list.
        is_initializer = ":" in this.words and (before == "<>" or _NAME.fullmatch(before))
        if is_class or this.has_parameters:
            this.head_end = this.head_end or index
        if is_class and "enum" not in this.words:
            name = self._class_name(this)
            this.name = this.name or name
            this.members = self.split(index + 1, end, (*this.classes, name))
        elif this.has_parameters and not this.is_assigned and not is_initializer:
            this.body = index, end
        this.words.append("{}")

    def _add_operator(self, this, index):
        """Adds an operator, whose name it notes; returns the index of the name's last token."""
        this.name_index = index
        start = index = index + 1
        index += 2 if self._text(index) == "(" else 1
        while self._text(index) not in ("(", ";", ""):
            index = self._skip_angles(index) if self._text(index) == "<" else index
            index += 1
        symbol = "".join(token.text for token in self._tokens[start:index])
        this.name = f"operator{symbol.partition('<')[0] or symbol}"
        this.words.append("operator")
        return index - 1

    def _set_name(self, this, index):
        """Sets the name of a function whose parameters begin here."""
        index -= 1
        if self._text(index) == ">":
            depth, start = 1, index
            while depth and index > this.first:
                index -= 1
                depth += (self._text(index) == ">") - (self._text(index) == "<")
            index = index - 1 if not depth else start
        if self._tokens[index].kind == "word":
            this.name, this.name_index = self._text(index), index

    def _class_name(self, this):
        """Returns the name of a class whose members begin now."""
        keyword = next(n for n, word in enumerate(this.words) if word in CLASSES)
        words = [w for w in this.words[keyword + 1 :] if w not in _NOT_NAMES | {"final"}]
        stop = words.index(":") if ":" in words else len(words)
        names = list(filter(_NAME.fullmatch, words[:stop]))
        return names[-1] if names else ""

    def _skip_angles(self, index):
        """Returns the index of the > that ends the < at an index."""
        depth = 0
        while index < len(self._tokens):
            text = self._text(index)
            if text in _OPEN:
                index = self._closers[index]
            elif text in _CLOSE or text == ";":
                break
            depth += (text == "<") - (text == ">")
            if depth == 0:
                return index
            index += 1
        raise NotUnderstood("a < of a template without >")


def _match(tokens):
    """Returns {index of an opening bracket: that of its closing one}."""
    found, waiting = {}, []
    for index, token in enumerate(tokens):
        if token.kind != "mark":
            continue
        if token.text in _OPEN:
            waiting.append(index)
        elif token.text in _CLOSE:
            if not waiting or _OPEN[tokens[waiting[-1]].text] != token.text:
                raise NotUnderstood("brackets do not match")
            found[waiting.pop()] = index
        elif token.text in ("<%", "%>", "<:", ":>", '"', "'", "\\", "@", "`"):
            raise NotUnderstood(f"a {token.text}")
    if waiting:
        raise NotUnderstood("a bracket without its end")
    return found
