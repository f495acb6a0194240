"""Records the edits of examples/live_edit.py in a session of Python: an SVG for the README.

    python -m benchmarks.recording FILE.svg

It needs a GPU. The lines and their times are those of the session, which begins when the extension
has been built once and its device code has been compared with NVRTC's. The animation begins with
the first edit. Between two steps, as if a person typed them, is one second.
"""

import contextlib
import io
import itertools
import os
import shutil
import sys
import tempfile
import textwrap
import time
from html import escape
from pathlib import Path
from runpy import run_path

from _jit_loader.live.edit import LIVE
from jit_loader import loaded

EXAMPLE = Path(__file__).parents[1] / "examples" / "live_edit.py"
LOAD = 'module = load("gelu", ["gelu.cu"])'
LOAD_AND_MEASURE = LOAD, "print(measure(module.gelu, x, reference=gelu))"
# A step is a command, or an edit of the file: (text, the text in its place).
EDITS = [(edit, *LOAD_AND_MEASURE) for edit in run_path(str(EXAMPLE))["EDITS"]]
SESSION = (
    *("import torch", "from torch.nn.functional import gelu"),
    *("from jit_loader import load, measure", 'x = torch.randn(1 << 24, device="cuda")'),
    *itertools.chain(LOAD_AND_MEASURE, *EDITS),
)
STEP_SECONDS, LAST_SECONDS = 1, 8
COLOURS = {"command": "#e6edf3", "output": "#9da7b3", "-": "#ff7b72", "+": "#7ee787"}
WIDTH, LINE, LETTERS = 740, 19, 92


def recorded():
    """Returns [(seconds since the first edit, kind, line)]; kind: a key of COLOURS."""
    file, lines, now, names = Path("gelu.cu"), [], -STEP_SECONDS, {}
    exec(f"from jit_loader import load; {LOAD}", {})
    live = Path(loaded("gelu").path).with_name(LIVE)
    while not live.exists():  # its device code is compared in the background
        time.sleep(1)
    for step in SESSION:
        now += STEP_SECONDS
        if isinstance(step, tuple):
            file.write_text(file.read_text().replace(*step))
            lines.append((now, "output", f"# an edit of {file}"))
            lines += [(now, mark, f"{mark} {part}") for mark, part in zip("-+", step)]
            continue
        lines.append((now, "command", f">>> {step}"))
        output, started = io.StringIO(), time.perf_counter()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            exec(step, names)
        now += time.perf_counter() - started
        for line in output.getvalue().splitlines():
            lines += [(now, "output", part) for part in textwrap.wrap(line, LETTERS)]
    first = min(at for at, _, line in lines if line.startswith("#"))
    return [(max(0, at - first), kind, line) for at, kind, line in lines]


def svg(lines):
    """Returns the picture, in which each line appears at its time, again and again."""
    seconds, size = lines[-1][0] + LAST_SECONDS, f"{WIDTH} {LINE * (len(lines) + 1)}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-size="13"'
    parts = [f'{head} font-family="monospace"><rect width="100%" height="100%" fill="#0d1117"/>']
    for number, (at, kind, line) in enumerate(lines, 1):
        place = f'x="12" y="{LINE * number}" fill="{COLOURS[kind]}" xml:space="preserve"'
        times = f'values="0;1" keyTimes="0;{at / seconds:.4f}" dur="{seconds:.1f}s"'
        appears = f'<animate attributeName="opacity" calcMode="discrete" {times}'
        parts.append(f'<text {place}>{escape(line)}{appears} repeatCount="indefinite"/></text>')
    return "\n".join([*parts, "</svg>\n"])


def main():
    target = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["JIT_LOADER_CACHE"] = os.path.join(folder, "cache")
        os.chdir(folder)
        shutil.copy(EXAMPLE.with_name("gelu.cu"), folder)
        target.write_text(svg(recorded()))


if __name__ == "__main__":
    main()
