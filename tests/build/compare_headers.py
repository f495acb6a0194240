"""Compares the objects of a source with the complete torch/extension.h and without the frontend.

    python -m tests.build.compare_headers SOURCE [-I FOLDER]...

It prints which header the loader chooses, and how many functions differ. docs/works-with.md has the
results for public extensions. With a .cu file, the device code is compared too.
"""

import argparse
import re
import subprocess
import tempfile

from _jit_loader.build.pytorch import extension_header
from _jit_loader.build.pytorch.ninja_file import make_ninja_file
from _jit_loader.key import toolchain
from _jit_loader.key.digests import Digests
from _jit_loader.key.request import Request

# What differs between equal functions: the name of the file's initialiser, places in its data, what
# objdump guesses as the target of an unresolved call, which of the two names of a constructor or
# destructor it prints, and ids that nvcc derives from the file.
VARIABLE = [
    (r"_GLOBAL__sub_I_\w+", "initialiser"),
    (r"(\.(?:ro)?data|\.bss|\.text|\.nv\w+)[.\w]*[+-]0x[0-9a-f]+", r"\1"),
    (r"<[^<>\n]*>(?=\n\t+R_)", ""),
    (r"(?<=[CD])[12](?=E)", "1"),
    (r"_[0-9a-f]{8}(?:_\d+)?_\w+?_cu_[0-9a-f]{8}(?:_\d+)?", "_id"),
]


def functions(path):
    """Returns {name: its instructions and relocations} of an object."""
    command = ["objdump", "-dr", "--no-show-raw-insn", "--no-addresses", path]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for pattern, replacement in VARIABLE:
        text = re.sub(pattern, replacement, text)
    found = {}
    for part in re.split(r"^(?=<.*>:$)", text, flags=re.MULTILINE)[1:]:
        name, _, code = part.partition(":\n")
        found.setdefault(name, []).append(code.partition("\nDisassembly of")[0].strip())
    if ".cuda." in path:
        code = subprocess.run(["cuobjdump", "-sass", path], capture_output=True, text=True).stdout
        found["device code"] = re.sub(VARIABLE[-1][0], "_id", code)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source")
    parser.add_argument("-I", dest="folders", action="append")
    options = parser.parse_args()
    cuda = toolchain.why_no_cuda() is None
    folders = options.folders
    request = Request("compared", [options.source], extra_include_paths=folders, with_cuda=cuda)
    reason = extension_header.choose(request).get(request.sources[0], "it does not include it")
    objects = []
    with tempfile.TemporaryDirectory() as folder:
        ninja_file = make_ninja_file(request, folder, folder, Digests())
        (output,) = ninja_file.compilations
        for ninja_file.without_frontend in (set(), {output}):
            done = subprocess.run(ninja_file.command(output), cwd=folder, capture_output=True)
            path = f"{folder}/{output}"
            objects.append(functions(path) if done.returncode == 0 else None)
    if None in objects:
        says = "fails: " + ", ".join(w for w, o in zip(("complete", "small"), objects) if o is None)
    else:
        names = objects[0].keys() | objects[1].keys()
        different = sorted(n for n in names if objects[0].get(n) != objects[1].get(n))
        says = f"{len(names)} functions, {len(different)} differ {different[:5]}"
    print(f"{options.source}: {'small' if reason is None else f'complete: {reason}'}; {says}")


if __name__ == "__main__":
    main()
