"""The build.ninja that PyTorch writes, read and rewritten.

ninja decides by timestamps and we decide by content: objects that are still good are no longer
built in the rewritten file, so ninja only runs what is left, in parallel.
"""

import re
import shlex

from _jit_loader.key import toolchain
from _jit_loader.cuda import ptxas

EDGE = r"^build (\S+): (\w+) (.*)$"  # outputs have plain names: see stand_ins.py


class NinjaFile:
    """The text of build.ninja, with its edges: {output: (rule, [inputs])}.

    sources: the real paths of what is compiled, for which the text has stand-ins; in its order.
    source_flags: {source: flags} that come last in the command of one source.
    """

    def __init__(self, text, sources, source_flags):
        # PyTorch 2.13 quotes "ccache g++" as one word; and on request it leaves nvcc's depfile out.
        cxx = shlex.join(toolchain.cxx_command()).replace("$", "$$")
        text = re.sub(r"^cxx = .*$", lambda _: f"cxx = {cxx}", text, flags=re.MULTILINE)
        text = text.replace("= $nvcc  $cuda_cflags", "= $nvcc -MD -MF $out.d $cuda_cflags")
        self._text = text
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
        """The name of the file that the link edge makes."""
        return next(output for output, (rule, _) in self.edges.items() if rule == "link")

    def is_cuda(self, output):
        return self.edges[output][0] == "cuda_compile"

    def command(self, output):
        """The words of the command that makes an output."""
        rule, inputs = self.edges[output]
        values = {}
        for name, text in {**self._variables, **self._own_variables(output)}.items():
            values[name] = _expanded(text, values)
        values["in"] = " ".join(map(shlex.quote, inputs))
        values["out"] = shlex.quote(output)
        return shlex.split(_expanded(self._commands[rule], values))

    def _own_variables(self, output):
        """The variables that an edge sets for itself."""
        flags = self._source_flags.get(self.compilations.get(output))
        if not flags:
            return {}
        name = "cuda_post_cflags" if self.is_cuda(output) else "post_cflags"
        return {name: " ".join([self._variables.get(name, ""), *flags]).strip()}

    @property
    def link_flags(self):
        return self._variables.get("ldflags", "")

    def without(self, kept, link_flags=None):
        """The text for ninja: the kept objects are there already.

        link_flags: in place of those that PyTorch has written.

        The depfiles stay as files and name system headers too, for which PyTorch passes -MMD; the
        linker says which files it linked, and nvcc what its kernels use.
        """
        lines = []
        for line in self._text.split("\n"):
            edge = re.match(EDGE, line)
            if edge is not None:
                output = edge[1]
                if output in kept:
                    continue
                rule, inputs = self.edges[output]
                line = f"build {output}: {rule} {' '.join(map(_escaped, inputs))}"
                own = self._own_variables(output)
                line += "".join(f"\n  {name} = {value}" for name, value in own.items())
            if line.strip() == "deps = gcc":
                continue
            if link_flags is not None and line.startswith("ldflags = "):
                line = f"ldflags = {link_flags}"
            line = re.sub(r"^(  command = .*) -MMD ", r"\1 -MD ", line)
            line = line.replace("  command = $nvcc ", f"  command = $nvcc {ptxas.FLAG} ")
            if line.startswith("rule "):
                line += "\n  description = $out"
            if line.startswith("  command = $cxx $in $ldflags"):
                line += " -Wl,--trace"
            lines.append(line)
        return "\n".join(lines)


def _expanded(text, values):
    """The text with variables and escapes as ninja reads them."""
    return re.sub(
        r"\$(?:([ :$])|(\w+)|\{([\w.-]+)\})",
        lambda match: match[1] or values.get(match[2] or match[3], ""),
        text,
    )


def _escaped(path):
    return re.sub(r"([$ :])", r"$\1", path)
