"""Runs nvcc's programs for the host and for the GPU in parallel; nvcc runs them in sequence.

    python halves.py [--nice=N] [--headers=FOLDER] nvcc <arguments>

FOLDER: of precompiled headers, which host_header.py describes. If one is missing, a file beside the
object, <object>.header.json, describes it: its slot, text and flags.

With torch/types.h the GPU's half takes 11 s of 33, and with a plain kernel a third of 1.5 s.

`nvcc --dryrun` lists the commands. nvcc's order has one reason: when cudafe++ ends, it writes an id
of the file, which cicc uses in the names of static symbols. Here both get an id that is made
beforehand. With nvcc's own id the object was the same, byte for byte (CUDA 13.0 and 13.2). If the
list is not as expected, or a command fails without an error message, nvcc itself runs.

A compilation starts this file as a script, so it imports another module of the package,
host_header.py, for large host code only.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import zlib

MARK = "#$ "
SETTING = re.compile(r"\w+=")
DEPENDENCIES = re.compile(r"-- Filter Dependencies -- > (\S+)")
GENERATE_ID = "--gen_module_id_file "
VERSION = re.compile(r"-D__CUDACC_VER_MAJOR__=(1[3-9]|[2-9]\d)\b")  # tested: 13.0 and 13.2
ID_FILE = re.compile(r'--module_id_file_name "([^"]+)"')
CUDAFE_OUTPUT = re.compile(r'--gen_c_file_name "([^"]+)"')
LEAST_BYTES = 4_000_000  # of headers; for fewer, as without PyTorch's, g++ takes less than 2 s
# {kind of a command: its text}, in nvcc's order within each half.
KINDS = {
    "device": r"\S*(?:gcc|g\+\+|c\+\+|clang\S*) .*-D__CUDA_ARCH__=\d+ .*-E |\S*cicc\"? |\S*ptxas ",
    "host": r"\S*(?:gcc|g\+\+|c\+\+|clang\S*) (?!.*-D__CUDA_ARCH__=).*-E |\S*cudafe\+\+ ",
    "joined": r"\S*fatbinary |\S*(?:gcc|g\+\+|c\+\+|clang\S*) .*-c -x c\+\+ ",
}
NAMES = ("cicc", "cudafe++", "ptxas", "fatbinary")


class Unexpected(Exception):
    """The commands are not those of a plain compilation."""


class Step:
    """One command of nvcc, its process and its output."""

    def __init__(self, command):
        self.command = command
        self.kind = next((k for k, text in KINDS.items() if re.match(f'"?{text}', command)), None)
        self.process, self.output = None, b""

    def run(self, environment):
        self.process, self.output = None, b""
        try:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {self.command}"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError:  # no process can be started: the step counts as not run
            return False
        self.output = self.process.communicate()[0]
        return self.process.returncode == 0


class Commands:
    """The commands of a compilation. folder: for their intermediate files."""

    def __init__(self, nvcc, folder):
        listed = subprocess.run(
            [*nvcc, "--dryrun", "--keep", "--keep-dir", folder],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
        )
        lines = listed.stderr.splitlines()
        self.said = [line for line in lines if not line.startswith(MARK)]
        self.environment, self.steps, self.depfile = dict(os.environ), [], None
        for line in (line[len(MARK) :] for line in lines if line.startswith(MARK)):
            if SETTING.match(line):
                name, _, value = line.partition("=")
                self.environment[name] = value
            elif found := DEPENDENCIES.fullmatch(line.strip()):
                self.depfile = found[1]
            elif not line.startswith("rm ") and line.strip():
                self.steps.append(Step(line))
        self._check(listed.returncode)

    def _check(self, returncode):
        """Raises Unexpected for commands that this file does not know."""
        names = [name for step in self.steps for name in NAMES if name in step.command.split()[0]]
        compiles = names.count("cicc") == names.count("ptxas") > 0
        ends = [step.kind for step in self.steps[-2:]] == ["joined", "joined"]
        kinds = [step.kind for step in self.steps]
        if (
            returncode != 0
            or not (compiles and ends)
            or any("--device-c" in step.command for step in self.steps)  # -rdc=true
            or not any(map(VERSION.search, (step.command for step in self.steps)))
            or kinds.count("joined") != 2
            or kinds.count("host") != 2
            or kinds.count("device") != 3 * names.count("cicc")
            or (names.count("cudafe++"), names.count("fatbinary")) != (1, 1)
        ):
            raise Unexpected

    def of_kind(self, kind):
        return [step for step in self.steps if step.kind == kind]

    def write_id(self, source):
        """Writes the id of the source, and returns it; removes the flag for cudafe++'s own id."""
        cudafe = self.of_kind("host")[-1]
        found = ID_FILE.search(cudafe.command)
        if found is None or GENERATE_ID not in cudafe.command:
            raise Unexpected
        cudafe.command = cudafe.command.replace(GENERATE_ID, "")
        path = os.path.abspath(source).encode(errors="surrogateescape")
        # Of the same length for all files, for host_header.py.
        module_id = f"_{zlib.crc32(path):08x}{zlib.adler32(path):08x}"
        with open(found[1], "w") as file:
            file.write(module_id)
        return module_id.encode()

    def list_dependencies(self, output):
        """Adds flags with which the preprocessors write the depfiles; returns their paths."""
        paths = []
        for step in self.steps if self.depfile else ():
            if " -E " in step.command:
                paths.append(f"{self.depfile}.{len(paths)}")
                step.command += f" -MD -MF '{paths[-1]}' -MT '{output}'"
        return paths


def run(nvcc, source, output, folder, headers):
    """Compiles; returns the exit code. Raises Unexpected if nvcc itself has to run."""
    commands = Commands(nvcc, folder)
    module_id = commands.write_id(source)
    depfiles = commands.list_dependencies(output)
    environment = commands.environment
    host, device = map(commands.of_kind, ("host", "device"))
    beside = threading.Thread(target=lambda: all(step.run(environment) for step in device))
    beside.start()
    good = all(step.run(environment) for step in host)
    if not good:
        for step in device:
            if step.process is not None and step.process.poll() is None:
                step.process.kill()
    beside.join()
    good = good and all(step.process and step.process.returncode == 0 for step in device)
    if good:
        fatbinary, compiler = commands.of_kind("joined")
        good = fatbinary.run(environment)
    if good:
        arguments = commands, compiler, module_id, output, headers
        if not (headers and _compile_with_header(*arguments)):
            compiler.run(environment)
    code = _report(commands)
    texts = []
    for path in filter(os.path.exists, depfiles):
        with open(path, "rb") as file:
            texts.append(file.read().rstrip(b"\n"))
        os.unlink(path)
    if code == 0 and texts:
        with open(commands.depfile, "wb") as file:
            file.write(b" ".join([texts[0], *(text.partition(b": ")[2] for text in texts[1:])]))
            file.write(b"\n")
    return code


def _compile_with_header(commands, compiler, module_id, output, folder):
    """Compiles the host code if its header is precompiled, else requests the header.

    Returns whether a compiler ran.
    """
    path = CUDAFE_OUTPUT.search(commands.of_kind("host")[-1].command)[1]
    if os.path.getsize(path) < LEAST_BYTES:
        return False

    import json

    from _jit_loader.cuda.host_header import HostCode

    toolkit = commands.environment.get("INCLUDES", "").strip('" ').removeprefix("-I")
    code = HostCode(path, module_id, compiler.command, toolkit or os.devnull)
    if len(code.header) <= LEAST_BYTES:
        return False
    slot = code.slot(folder)
    header, is_wanted = code.find_header(slot)
    with contextlib.suppress(OSError):
        if is_wanted:
            # A header with warnings is not made: g++ would print them only then.
            words = [*code.words(), "-Werror"]
            wanted = {"slot": slot, "text": code.header.decode(errors="surrogateescape")}
            with open(f"{output}.header.json", "w") as file:
                json.dump({**wanted, "words": words}, file)
        elif header is not None:
            with contextlib.suppress(OSError):
                os.utime(os.path.dirname(header))  # the time of the last use, for pruning
    if header is None:
        return False
    compiler.command = code.command_with(header)
    if compiler.run(commands.environment):
        code.put_id_in(output)
    else:  # usually an error in the source, which is reported without the header
        compiler.command = code.command
        code.restore()
        compiler.run(commands.environment)
    return True


def _report(commands):
    """Prints what nvcc would print, up to the first command that failed; returns its exit code."""
    text, code = "".join(f"{line}\n" for line in commands.said).encode(), 0
    for step in commands.steps:
        if step.process is None or step.process.returncode < 0:  # killed, if the host's half failed
            code = -1
            continue
        text += step.output
        code = step.process.returncode
        if code != 0:
            if b"error" not in step.output.lower():
                raise Unexpected
            break
    if code < 0:
        raise Unexpected
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()
    return code


def main(arguments):
    options = {}
    while arguments[0].startswith("--"):
        name, _, options[name] = arguments.pop(0).partition("=")
    os.nice(int(options.get("--nice", 0)))
    source, output = (arguments[arguments.index(flag) + 1] for flag in ("-c", "-o"))
    folder = f"{output}.steps"
    os.makedirs(folder, exist_ok=True)
    try:
        return run(arguments, source, output, folder, options.get("--headers"))
    except (Unexpected, OSError, ValueError):
        return subprocess.run(arguments).returncode
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    sys.exit(main(sys.argv[1:]))
