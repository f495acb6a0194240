"""Finds the functions of a C++ or CUDA source that other sources can call."""

import re

# Comments, directives and literals. Their text could be mistaken for code.
TOKEN = re.compile(
    r"""(?P<no_code>//[^\n]*|/\*.*?\*/"""  # a comment
    r"""|^[ \t]*\#(?:[^\n\\]|\\.)*)"""  # a directive, with continued lines
    r"""|R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'"""
    r"""|(?P<number>\b\d[\w.']*)""",  # 1'000'000 holds no character literal
    re.DOTALL | re.MULTILINE,
)
IF = re.compile(r"\s*#\s*(?P<word>if|elif|else|endif)(?P<never>\s+(?:0|false)\b)?")
# Macro calls and attributes before a function. A declaration does not need them.
BEFORE = re.compile(
    r"(\s*(?!extern\b)(__attribute__\s*\(\(.*?\)\)|\w+\s*\([^()]*\)(?=\s*[\w:]+[\s&*]))\s*;?)*",
    re.DOTALL,
)
FUNCTION = re.compile(r"(?P<type>[^()=]*[\s&*])(?P<name>[A-Za-z_]\w*)\s*\([^{}]*$")
# Words of definitions that another source cannot link to, or that run on the GPU.
HIDDEN = {
    *("static", "inline", "constexpr", "consteval", "template", "operator"),
    *("__global__", "__device__", "friend", "typedef", "using", "class", "enum", "union"),
}


def declarations(source):
    """Returns {name: [declaration]} of the functions with external linkage outside of namespaces.

    An overloaded function has several declarations.
    """
    source = _without_disabled(source)
    code = TOKEN.sub(lambda match: _blank(match[0]) if match["no_code"] else match[0], source)
    plain = TOKEN.sub(lambda match: match[0] if match["number"] else _blank(match[0]), code)
    found = {}
    for start, end, has_c_linkage in _before_bodies(plain):
        head = _without(r"<[^<>]*>", _without(r"\{[^{}]*\}", plain[start:end]))
        before = len(BEFORE.match(head)[0])
        start, head = start + before, head[before:]
        function = FUNCTION.fullmatch(head)
        if function is None or function["name"] in HIDDEN:
            continue
        words = set(re.findall(r"\w+", function["type"]))
        if words and not words & HIDDEN:
            linkage = 'extern "C" ' * has_c_linkage
            declaration = f"{linkage}{' '.join(code[start:end].split())};"
            found.setdefault(function["name"], []).append(declaration)
    return found


def _without_disabled(source):
    """Returns the source with blank lines between each #if 0 and its #else or #endif."""
    kept, depth = [], 0  # depth: number of open #ifs, from the disabled one on
    for line in source.split("\n"):
        directive = IF.match(line)
        word = directive["word"] if directive else None
        if depth == 0:
            depth += word == "if" and directive["never"] is not None
        elif word in ("if", "endif"):
            depth += 1 if word == "if" else -1
        elif depth == 1 and word is not None:
            depth = 0
        kept.append("" if depth else line)
    return "\n".join(kept)


def _before_bodies(code):
    """Yields (start, end, is_in_extern_c_block) of the text before each outermost opening brace.

    code: a source whose comments, directives and literals are blank.
    """
    start = depth = parentheses = c_blocks = 0
    for position, character in enumerate(code):
        if depth == 0 and character in "()":
            parentheses += 1 if character == "(" else -1
        elif parentheses > 0:
            continue  # these braces belong to a default argument
        elif character == "{":
            if depth == 0 and code[start:position].split() == ["extern"]:
                c_blocks += 1
                start = position + 1
                continue
            if depth == 0:
                yield start, position, c_blocks > 0
            depth += 1
        elif character == "}" and depth == 0:
            c_blocks -= 1
            start = position + 1
        elif character in "};":
            depth -= character == "}"
            start = position + 1 if depth == 0 else start


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def _without(pattern, text):
    """Replaces all matches with spaces, the innermost first."""
    while (shorter := re.sub(pattern, lambda match: " " * len(match[0]), text)) != text:
        text = shorter
    return text
