"""Compares NAME with PyTorch, and measures both: python examples/run_NAME.py

python -m jit_loader watch examples/run_NAME.py does it again after each save.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder of bindings/

from jit_loader import loaded, measure

from bindings.NAME import NAME


def expected(x):
    return torch.softmax(x, -1)


has_gpu = torch.cuda.is_available() and loaded("NAME").with_cuda
x = torch.randn(4096, 4096, device="cuda" if has_gpu else "cpu")
print(measure(NAME, x, reference=expected))
