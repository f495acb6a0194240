"""Runs nvcc's programs for the host and for the GPU in parallel; nvcc runs them in sequence.

    python halves.py [--nice=N | --in-turn] nvcc <arguments>

With torch/types.h the GPU's half takes 11 s of 33, and with a plain kernel a third of 1.5 s.

`nvcc --dryrun` lists the commands. nvcc's order has one reason: when cudafe++ ends, it writes an id
of the file, which cicc uses in the names of static symbols. Here both get an id that is made
beforehand. With nvcc's own id the object was the same, byte for byte (CUDA 13.0 and 13.2). If the
list is not as expected, or a command fails without an error message, nvcc itself runs; the list
takes 0.04 s.

With --in-turn, because no core is free, the order is nvcc's, but the id is the same: nvcc's own may
contain the number of a process, and live edits compare objects.

A compilation starts this file as a script, so it imports no other module of the package.
"""

import collections
import os
import re
import shutil
import subprocess
import sys
import threading
import zlib

# After the path of Python. -S: no module of site-packages is needed, so it starts in 10 ms.
COMMAND, IN_TURN = ["-I", "-S", __file__], "--in-turn"
MARK = "#$ "
SETTING = re.compile(r"\w+=")
GENERATE_ID = "--gen_module_id_file "
VERSION = re.compile(r"-D__CUDACC_VER_MAJOR__=(1[3-9]|[2-9]\d)\b")  # tested: 13.0 and 13.2
ID_FILE = re.compile(r'--module_id_file_name "([^"]+)"')
# {step: its half}. There is one step of each kind, for the device one per architecture.
STEPS = {
    **dict.fromkeys(("preprocess for the device", "cicc", "ptxas"), "device"),
    **dict.fromkeys(("preprocess for the host", "cudafe++"), "host"),
    **dict.fromkeys(("fatbinary", "compile"), "joined"),
}


class Unexpected(Exception):
    """The commands are not those of a plain compilation."""


class Step:
    """One command of nvcc, its process and its output."""

    def __init__(self, command, environment):
        self.command, self._environment = command, environment
        self.process, self.output = None, b""
        # The host compiler may have any name, so its flags tell its steps.
        if " -E -x c++ " in command:
            self.name = f"preprocess for the {'device' if '__CUDA_ARCH__=' in command else 'host'}"
        elif " -c -x c++ " in command:
            self.name = "compile"
        else:
            self.name = os.path.basename(command.split()[0].strip('"'))

    def run(self):
        try:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {self.command}"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError:  # no process can be started: the step counts as not run
            return False
        self.output = self.process.communicate()[0]
        return self.process.returncode == 0


class Commands:
    """The commands of a compilation. folder: for their intermediate files.

    Raises Unexpected for commands that this file does not know.
    """

    def __init__(self, nvcc, folder):
        listed = subprocess.run(
            # One thread: with more, each command ends with "> file 2> file".
            [*nvcc, "--dryrun", "--keep", "--keep-dir", folder, "-t1"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
        )
        lines = listed.stderr.splitlines()
        self.said = [s for s in lines if not s.startswith(MARK) and "'threads'" not in s]
        environment, self.steps = dict(os.environ), []
        for line in (line[len(MARK) :] for line in lines if line.startswith(MARK)):
            if SETTING.match(line):
                name, _, value = line.partition("=")
                environment[name] = value
            elif not line.startswith(("rm ", "-- Filter Dependencies --")) and line.strip():
                self.steps.append(Step(line, environment))
        if listed.returncode != 0 or not self._are_known():
            raise Unexpected

    def _are_known(self):
        names = [step.name for step in self.steps]
        architectures = names.count("cicc")
        numbers = {name: architectures if STEPS[name] == "device" else 1 for name in STEPS}
        return (
            collections.Counter(names) == numbers
            and names[-2:] == ["fatbinary", "compile"]
            and any(VERSION.search(step.command) for step in self.steps)
            and not any("--device-c" in step.command for step in self.steps)  # -rdc=true
            and GENERATE_ID in self.of("cudafe++").command
        )

    def of(self, name):
        return next(step for step in self.steps if step.name == name)

    def write_id(self, source):
        """Writes the id of the source; removes the flag for cudafe++'s own id."""
        cudafe = self.of("cudafe++")
        cudafe.command = cudafe.command.replace(GENERATE_ID, "")
        path = os.path.abspath(source).encode(errors="surrogateescape")
        with open(ID_FILE.search(cudafe.command)[1], "w") as file:
            # Always the same for a path: see live/host_code.py.
            file.write(f"_{zlib.crc32(path):08x}{zlib.adler32(path):08x}")


def run(commands, source, output, in_turn):
    """Compiles; returns the exit code. Raises Unexpected if nvcc itself has to run."""
    commands.write_id(source)
    depfiles = []  # the preprocessors write them
    for step in commands.steps:
        if step.name.startswith("preprocess"):
            depfiles.append(f"{output}.steps/{len(depfiles)}.d")
            step.command += f" -MD -MF '{depfiles[-1]}' -MT '{output}'"
    if in_turn:
        all(step.run() for step in commands.steps)
    elif _run_halves(commands) and commands.of("fatbinary").run():
        commands.of("compile").run()
    code = _report(commands)
    texts = []
    for path in filter(os.path.exists, depfiles):
        with open(path, "rb") as file:
            texts.append(file.read().rstrip(b"\n"))
    if code == 0 and texts:
        with open(f"{output}.d", "wb") as file:  # as nvcc's flag -MF says
            file.write(b" ".join([texts[0], *(text.partition(b": ")[2] for text in texts[1:])]))
            file.write(b"\n")
    return code


def _run_halves(commands):
    """Runs the host's and the device's steps; returns whether all succeeded."""
    names = ("host", "device")
    host, device = ([s for s in commands.steps if STEPS[s.name] == half] for half in names)
    parallel = threading.Thread(target=lambda: all(step.run() for step in device))
    parallel.start()
    succeeded = all(step.run() for step in host)
    if not succeeded:
        for step in device:
            if step.process is not None and step.process.poll() is None:
                step.process.kill()
    parallel.join()
    return succeeded and all(step.process and step.process.returncode == 0 for step in device)


def _report(commands):
    """Prints what nvcc would print, up to the first command that failed; returns its exit code."""
    text = "".join(f"{line}\n" for line in commands.said).encode()
    for step in commands.steps:
        code = -1 if step.process is None else step.process.returncode
        if code >= 0:  # below it was killed, perhaps because the host's half failed
            text += step.output
        if code > 0:
            break
    if code < 0 or (code > 0 and b"error" not in step.output.lower()):
        raise Unexpected
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()
    return code


def main(arguments):
    if arguments[0].startswith("--nice="):
        os.nice(int(arguments.pop(0).partition("=")[2]))
    if in_turn := arguments[0] == IN_TURN:
        del arguments[0]
    source, output = (arguments[arguments.index(flag) + 1] for flag in ("-c", "-o"))
    folder = f"{output}.steps"
    os.makedirs(folder, exist_ok=True)
    try:
        return run(Commands(arguments, folder), source, output, in_turn)
    except (Unexpected, OSError, ValueError):
        return subprocess.run(arguments).returncode
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
