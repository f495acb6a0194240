"""Reads and rewrites the build.ninja that PyTorch writes.

ninja decides by timestamps, the loader by content: the rewritten file has no edges for objects that
still fit, so that ninja runs only the other steps, in parallel.
"""

import os
import re
import shlex

from _jit_loader.build.inputs.queries import is_relocatable
from _jit_loader.cuda import halves, ptxas
from _jit_loader.key import toolchain

EDGE = r"^build (\S+): (\w+) (.*)$"  # outputs have plain names: see ninja_text.make_source_links

# After the path of Python. -S: halves.py needs no module of site-packages, and so starts in 10 ms.
HALVES = ["-I", "-S", halves.__file__]
NVCC = f"  command = $nvcc {ptxas.FLAG} "

DEVICE_LINK = """\
rule device_link
  command = $nvcc {flags} -dlink $in -o $out -lcudadevrt

build device_link.o: device_link {objects}
"""


class NinjaFile:
    """The text of build.ninja, and its edges: {output: (rule, [inputs])}.

    sources: the real paths of the sources, in the order of the links in the text.
    source_flags: {source: flags} to append to the command of one source.
    """

    def __init__(self, text, sources, source_flags):
        # PyTorch 2.13 quotes "ccache g++" as one word. It omits nvcc's depfile if
        # TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES=1.
        cxx = shlex.join(toolchain.cxx_command()).replace("$", "$$")
        text = re.sub(r"^cxx = .*$", lambda _: f"cxx = {cxx}", text, flags=re.MULTILINE)
        text = text.replace("= $nvcc  $cuda_cflags", "= $nvcc -MD -MF $out.d $cuda_cflags")
        # The user's depfile would take the place of the loader's.
        text = re.sub(r"(?<!\S)-Wp,-MM?D,[^,\s]+(?!\S)", "", text)
        if is_relocatable(text) or any(is_relocatable(" ".join(f)) for f in source_flags.values()):
            text = _with_device_link(text)
        self._text = _with_outputs(text)
        self._source_flags = source_flags
        self._variables = dict(re.findall(r"^(\w+) = (.*)$", text, re.MULTILINE))
        self._commands = dict(
            re.findall(r"^rule (\w+)\n(?:  .*\n)*?  command = (.*)$", text, re.MULTILINE)
        )
        self.edges = {}
        sources = iter(sources)
        for output, rule, inputs in re.findall(EDGE, text, re.MULTILINE):
            self.edges[output] = rule, [next(sources)] if "compile" in rule else inputs.split()

    @property
    def compilations(self):
        """{object: source} of the edges that compile."""
        return {
            output: inputs[0] for output, (rule, inputs) in self.edges.items() if "compile" in rule
        }

    @property
    def library(self):
        """The output of the link edge."""
        return next(output for output, (rule, _) in self.edges.items() if rule == "link")

    def is_cuda(self, output):
        return self.edges[output][0] == "cuda_compile"

    def command(self, output, link_flags=None):
        """Returns the words of the command that makes an output. link_flags: replace PyTorch's."""
        rule, inputs = self.edges[output]
        own = self._own_variables(output)
        own |= {} if link_flags is None else {"ldflags": link_flags}
        values = {}
        for name, text in {**self._variables, **own}.items():
            values[name] = _expanded(text, values)
        values["in"] = " ".join(map(shlex.quote, inputs))
        values["out"] = shlex.quote(output)
        return shlex.split(_expanded(self._commands[rule], values))

    def _own_variables(self, output, first_flags=()):
        """Returns the variables of an edge."""
        own = {}
        if first_flags:
            own["cflags"] = " ".join([*first_flags, self._variables["cflags"]])
        if flags := self._source_flags.get(self.compilations.get(output)):
            name = "cuda_post_cflags" if self.is_cuda(output) else "post_cflags"
            own[name] = " ".join([self._variables.get(name, ""), *flags]).strip()
        return own

    def _is_plain_nvcc(self):
        """Returns whether the compiler is nvcc itself, not a wrapper such as sccache."""
        words = shlex.split(self._variables.get("nvcc", ""))
        return len(words) == 1 and os.path.basename(words[0]) == "nvcc"

    @property
    def link_flags(self):
        return self._variables.get("ldflags", "")

    def text_to_run(self, kept=(), link_flags=None, first_flags=None, nvcc_prefix=()):
        """Returns the text for ninja, without edges for the objects that are kept.

        link_flags: flags that replace PyTorch's. first_flags: {C++ object: flags to put first}.
        nvcc_prefix: words before nvcc, such as those of HALVES, if it is nvcc itself.
        """
        text = self._text
        if link_flags is not None:
            text = re.sub(r"(?m)^ldflags = .*$", lambda _: f"ldflags = {link_flags}", text)
        if nvcc_prefix and self._is_plain_nvcc():
            prefix = shlex.join(nvcc_prefix).replace("$", "$$")
            text = text.replace(NVCC, NVCC.replace("$nvcc", f"{prefix} $nvcc"))

        def edge_of(match):
            output = match[1]
            if output in kept:
                return ""
            rule, inputs = self.edges[output]
            own = self._own_variables(output, (first_flags or {}).get(output, ()))
            lines = [f"build {output}: {rule} {' '.join(map(_escaped, inputs))}"]
            return "\n".join([*lines, *(f"  {name} = {value}" for name, value in own.items())])

        return re.sub(EDGE, edge_of, text, flags=re.MULTILINE)


def _with_outputs(text):
    """Returns the text of build.ninja with all that the steps have to write and print.

    Depfiles are kept, and list system headers too (PyTorch passes -MMD). The linker prints the
    files that it links, nvcc the resources of each kernel, and ninja the output of each step.
    """
    text = re.sub(r"(?m)^ *deps = gcc\n", "", text)
    text = re.sub(r"(?m)^(  command = .*) -MMD ", r"\1 -MD ", text)
    text = re.sub(r"(?m)^  command = \$nvcc (?=.* -c \$in )", lambda _: NVCC, text)
    text = re.sub(r"(?m)^  command = \$cxx \$in \$ldflags.*$", r"\g<0> -Wl,--trace", text)
    return re.sub(r"(?m)^rule .*$", r"\g<0>\n  description = $out", text)


def _with_device_link(text):
    """Adds the step that links device code of several sources, as PyTorch's BuildExtension does.

    PyTorch's load lacks it, and such a library then cannot be loaded: each object refers to a
    function __cudaRegisterLinkedBinary_<id>, which this step defines.
    """
    objects = " ".join(re.findall(r"^build (\S+): cuda_compile ", text, re.MULTILINE))
    if not objects:
        return text
    flags = " ".join(re.findall(r"^cuda_(?:post_)?cflags = (.*)$", text, re.MULTILINE))
    flags = re.sub(r"(?<!\S)(?:--?dc|--device-c)(?!\S)", "", flags)  # it names another step
    text = re.sub(r"^ldflags = .*$", r"\g<0> -lcudadevrt", text, flags=re.MULTILINE)
    first, link, last = re.split(r"^(build \S+: link )", text, flags=re.MULTILINE)
    return f"{first}{DEVICE_LINK.format(flags=flags, objects=objects)}\n{link}device_link.o {last}"


def _expanded(text, values):
    """Expands variables and escapes as ninja does."""
    return re.sub(
        r"\$(?:([ :$])|(\w+)|\{([\w.-]+)\})",
        lambda match: match[1] or values.get(match[2] or match[3], ""),
        text,
    )


def _escaped(path):
    return re.sub(r"([$ :])", r"$\1", path)
