"""The functions that a C++ or CUDA source offers to others."""

import re

# What is no code, and what could be taken for it.
TOKEN = re.compile(
    r"""(?P<no_code>//[^\n]*|/\*.*?\*/"""  # a comment
    r"""|^[ \t]*\#(?:[^\n\\]|\\.)*)"""  # a directive, on several lines too
    r"""|R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'"""
    r"""|(?P<number>\b\d[\w.']*)""",  # 1'000'000 has no character in it
    re.DOTALL | re.MULTILINE,
)
FUNCTION = re.compile(r"(?P<type>[^()=]*[\s&*])(?P<name>[A-Za-z_]\w*)\s*\([^{}]*$")
# Functions that another source cannot link to, and those that run on the GPU.
HIDDEN = {
    *("static", "inline", "constexpr", "consteval", "template", "operator"),
    *("__global__", "__device__", "friend", "typedef", "using", "class", "enum", "union"),
}


def declarations(source):
    """{name: declaration} of the functions that are defined in no namespace and can be linked to.

    A function that is to be the source's own is `static`.
    """
    code = TOKEN.sub(lambda match: _blank(match[0]) if match["no_code"] else match[0], source)
    plain = TOKEN.sub(lambda match: match[0] if match["number"] else _blank(match[0]), code)
    flat = _without_bodies(plain)
    found = {}
    for match in re.finditer(r"[^;{}]*\{", flat):
        head = match[0][:-1]
        function = FUNCTION.fullmatch(_without_template_arguments(head))
        if function is None or function["name"] in HIDDEN:
            continue
        words = set(re.findall(r"\w+", function["type"]))
        if words and not words & HIDDEN:
            found[function["name"]] = f"{' '.join(code[match.start() : match.end() - 1].split())};"
    return found


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def _without_bodies(code):
    """The code with spaces for all between the outermost braces."""
    depth, flat = 0, []
    for character in code:
        depth -= character == "}"
        flat.append(character if depth <= 0 else " ")
        depth += character == "{"
    return "".join(flat)


def _without_template_arguments(head):
    while (shorter := re.sub(r"<[^<>]*>", lambda match: " " * len(match[0]), head)) != head:
        head = shorter
    return head
