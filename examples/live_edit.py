"""Edits a kernel while the process runs: load has its new code, and measure says what changed.

python examples/live_edit.py

It edits build/live_edit/gelu.cu, a copy of gelu.cu, and needs a GPU and nvcc. The first run makes a
build, which takes about half a minute; each edit then takes a fraction of a second. (If all cores
were busy during the build, the first edit may take about 10 s.) The second edit has a wrong
constant on purpose, and measure finds it.
"""

from pathlib import Path

import torch
from torch.nn.functional import gelu

from jit_loader import load, measure, why_no_cuda

SOURCE = Path(__file__).with_name("gelu.cu")
COPY = SOURCE.parents[1] / "build" / "live_edit" / SOURCE.name  # it stays for the complete build
AS_DOUBLE = "0.5 * x[i] * (1.0 + erf(x[i] * 0.70710678))"
AS_FLOAT = "0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f))"
WRONG = AS_FLOAT.replace("0.707", "0.77")
EDITS = ((AS_DOUBLE, AS_FLOAT), (AS_FLOAT, WRONG))


def main():
    if why_no_cuda() or not torch.cuda.is_available():
        raise SystemExit("live_edit needs a GPU and nvcc: run `python -m jit_loader doctor`")
    x = torch.randn(1 << 24, device="cuda")
    COPY.parent.mkdir(parents=True, exist_ok=True)
    COPY.write_text(SOURCE.read_text())
    module = load("gelu", [str(COPY)])
    print(measure(module.gelu, x, reference=gelu))
    for old, new in EDITS:
        print(f"\n- {old}\n+ {new}")
        COPY.write_text(COPY.read_text().replace(old, new))
        module = load("gelu", [str(COPY)])
        print(measure(module.gelu, x, reference=gelu))


if __name__ == "__main__":
    main()
