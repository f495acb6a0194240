"""torch/extension.h without PyTorch's C++ frontend, for sources that use nothing of the frontend.

torch/extension.h includes torch/all.h, the C++ frontend (nn, optim, data, ...), and torch/python.h
(tensors, pybind11). A load takes 24.5 s with the second and 31.8 s with both, on two cores of EPYC
(benchmarks/results/cold_build.md). A macro leaves out the first.
It is for the code of PyTorch's Inductor, and no other header mentions it (as read in PyTorch 2.13
and 2.14).

A source is compiled with the macro if neither its code nor that of the user's headers which it
includes has a name that only headers of the frontend declare. The names are kept in the cache. Code
may use the frontend without such a name: if an error of the compiler then names one, ninja.py
compiles the source again without the macro.
"""

import functools
import itertools
import os
import re

from _jit_loader.cache.files import kept
from _jit_loader.key import PATH_LISTS, pytorch_version, toolchain
from _jit_loader.report.errors import ERROR_LINE
from _jit_loader.system import included, read_text

MACRO = "TORCH_INDUCTOR_CPP_WRAPPER"
OTHER_FOLDERS = re.compile(r"-(?:isystem|iquote|idirafter|imacros|iprefix)")
COMPLETE = {"torch/all.h", "torch/torch.h"}  # headers that include the frontend by themselves

NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'", re.DOTALL)
TORCH = re.compile(r"\b(?:at|c10)(?=\s*(?:::|[{;]))")  # torch has the names of at and c10 too
# PyTorch formats its headers with clang-format: what a namespace declares starts a line. The groups
# are the start and the end of a namespace, a macro, torch::kLinear, and other names.
DECLARATION = re.compile(
    r"^(?:namespace (?:([\w:]+) )?\{|(\})[ ]+// namespace|#[ ]*define (\w+)"
    r"|TORCH_ENUM_DECLARE\((\w+)|TORCH_MODULE\((\w+)|using (\w+) ="
    r"|(?:struct|class|enum|union) (?:class |\w+_API\w* )*(\w+)\b(?!;)"
    r"|(?!static_assert|TORCH_MODULE|TORCH_ENUM)\w[^(;=\n]*?(?<!:)\b(\w+)\()",
    re.MULTILINE,
)
MEMBER = re.compile(r'has no member named|^class "')  # an error about a member of a class
# Namespaces and aliases.
KNOWN = re.compile(r"\b(?:using|namespace) (?:\w+::)*(\w+) ?[={]")


def choose(request):
    """Returns {source: why it needs the complete header, or None} for those that include it."""
    used, found = functools.cache(_used_names), {}
    for source in request.sources:
        files, included = _included(request, source)
        if "torch/extension.h" in included:
            found[source] = _why_complete(request, included, map(used, files))
    return found


def named_in(output):
    """Returns whether an error in a compiler's output names something of the frontend."""
    errors = [match["message"] for match in map(ERROR_LINE.match, output) if match]
    errors = " ".join(error for error in errors if not MEMBER.search(error))
    return not set().union(*_frontend().values()).isdisjoint(re.findall(r"\w+", errors))


def _included(request, source):
    """Returns (the user's files that a source consists of, all names in their includes)."""
    flags = request.extra_cuda_cflags if source.endswith((".cu", ".cuh")) else request.extra_cflags
    flags = " ".join([*flags, *request.source_flags.get(source, ())])
    words, folders = iter(toolchain.split(flags, source)), list(request.extra_include_paths)
    files, names, todo = {}, set(), [(source, os.path.basename(source))]
    for word in words:
        if word.startswith("-I"):
            folders.append(word[2:] or next(words, ""))
        elif word == "-include":
            todo.append((source, next(words, "")))
    pytorch = os.path.join(toolchain.packages_folder(), "torch", "")
    folders = [folder for folder in folders if pytorch not in folder]
    while todo:
        path, name = todo.pop()
        names.add(name)
        places = (os.path.join(folder, name) for folder in [os.path.dirname(path), *folders])
        found = os.path.normpath(next(filter(os.path.isfile, places), ""))
        if os.path.isabs(found) and found not in files:
            files[found] = None
            todo += [(found, name) for name in included(read_text(found))]
    return files, names


def _used_names(path):
    """Returns the words of a file's code, its names with their scopes, and scopes that it opens."""
    text = TORCH.sub("torch", NO_CODE.sub(" ", read_text(path)))
    with_scopes = {f"{m[1]}::{m[2]}" for m in re.finditer(r"(\w+)\s*::\s*(?=(\w+))", text)}
    opened = set(re.findall(r"\bnamespace\b[^;{]*?(\w+)\s*[;{]", text))
    return set(re.findall(r"[A-Za-z_]\w*", text)), with_scopes, opened


def _why_complete(request, included, used):
    """Returns why a source needs the complete header, or None; used: _used_names of its files."""
    if os.environ.get("JIT_LOADER_HEADERS") == "complete":
        return "JIT_LOADER_HEADERS=complete"
    flags = [*request.extra_cflags, *request.extra_cuda_cflags]
    flags += itertools.chain(*request.source_flags.values())
    if OTHER_FOLDERS.search(" ".join(flags)) or any(map(os.environ.get, PATH_LISTS[:3])):
        return "its headers may be in folders other than those of -I"
    if not COMPLETE.isdisjoint(included):
        return f"it includes {min(COMPLETE & included)}"
    words, with_scopes, opened = (set().union(*sets) for sets in zip(*used))
    opened.add("")  # of macros
    for scope, names in _frontend().items():
        *outer, last = scope.split("::")
        if not words.issuperset(outer):
            continue
        prefix, used_names = ("", words) if last in opened else (f"{last}::", with_scopes)
        for name in names:
            if prefix + name in used_names:
                return f"it names {scope}::{name}".replace(" ::", " ")
    return None


def _frontend():
    """Returns {scope: names} of what only the frontend's headers declare; macros have scope ""."""
    folder = os.path.join(toolchain.packages_folder(), "torch", "include")
    api = os.path.join(folder, "torch", "csrc", "api", "include")
    return kept("frontend", [folder, *pytorch_version()], lambda: _read_frontend([folder, api]))


def _read_frontend(folders):
    others = _closure(folders, "torch/python.h", ())
    known = set(KNOWN.findall("\n".join(others.values())))
    found = {"": {MACRO}}
    for header, text in _closure(folders, "torch/all.h", others).items():
        declared = _declared(text)
        if text == "" and header.isalnum():  # of the C++ library
            declared = [("std", header), ("std", f"priority_{header}")]  # <queue>
        for scope, name in declared:
            if name not in known:
                found.setdefault(TORCH.sub("torch", f"{scope};")[:-1], set()).add(name)
    return {scope: sorted(names) for scope, names in found.items()}


def _closure(folders, first, without):
    """Returns {name: text} of PyTorch's headers that a header includes; "" for other headers."""
    texts, todo = {}, [first]
    while todo:
        name = todo.pop()
        # ATen/Functions.h, which torch/python.h includes, includes those of all operators.
        if name not in texts and name not in without and not name.startswith("ATen/ops/"):
            is_pytorchs = name.startswith(("torch/", "ATen/", "c10/"))
            read = (read_text(os.path.join(folder, name)) for folder in folders if is_pytorchs)
            texts[name] = next(filter(None, read), "")
            todo += [n.removeprefix("torch/csrc/api/include/") for n in included(texts[name])]
    return texts


def _declared(text):
    """Yields (scope, name) of what a header declares outside of functions and classes."""
    scopes = [""]
    for match in DECLARATION.finditer(text):
        namespace, end, macro, constant = match.groups()[:4]
        scope, name = scopes[-1], match[match.lastindex or 0]
        if match[0].startswith("namespace "):
            scopes.append("::".join(filter(None, [scope, namespace])))
            scope, _, name = scopes[-1].rpartition("::")
        elif end:
            scopes.pop()
        if macro:
            yield "", macro
        elif constant:
            yield "torch", f"k{constant}"
        elif scope and not end and not scope.startswith("std"):
            yield scope, name
