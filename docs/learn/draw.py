"""Draws the pictures of the chapters: `python docs/learn/draw.py` writes an SVG file for each."""

from html import escape
from pathlib import Path

BLUE, GREEN, ORANGE, GREY = "#cfe2f9", "#cdebd3", "#fbdfb6", "#e6e6e6"
NAMESPACE = 'xmlns="http://www.w3.org/2000/svg"'
HEAD = '<marker id="head" markerWidth="8" markerHeight="8" refX="8" refY="4" orient="auto">'


def text(x, y, words, anchor="start"):
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(str(words))}</text>'


def box(x, y, width, words="", fill=BLUE, height=30):
    shape = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3" fill="{fill}"'
    return f'{shape} stroke="#555"/>' + text(x + width / 2, y + height / 2 + 4, words, "middle")


def row(x, y, width, words, fill=BLUE):
    """Boxes of one width, with gaps of 6 pixels."""
    return "".join(box(x + (width + 6) * i, y, width, word, fill) for i, word in enumerate(words))


def arrow(x1, y1, x2, y2):
    line = f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#555"'
    return f'{line} stroke-width="1.5" marker-end="url(#head)"/>'


def picture(height, *parts):
    size = f'width="660" height="{height}"'
    font = 'font-family="sans-serif" font-size="13" fill="#222"'
    white = f'<rect {size} fill="white"/>'
    head = f'<defs>{HEAD}<path d="M0 0 8 4 0 8z" fill="#555"/></marker></defs>'
    return "\n".join([f"<svg {NAMESPACE} {size} {font}>{head}{white}", *parts, "</svg>\n"])


PICTURES = {
    "1-first-kernel": picture(
        190,
        text(20, 26, "grid: 3 blocks (gridDim.x = 3)"),
        *(box(20 + 210 * b, 40, 204, fill=GREY, height=66) for b in range(3)),
        *(text(30 + 210 * b, 58, f"block {b}: 4 threads") for b in range(3)),
        *(row(26 + 210 * b, 68, 43, ["t 0", "t 1", "t 2", "t 3"]) for b in range(3)),
        *(row(26 + 210 * b, 130, 43, range(4 * b, 4 * b + 4), GREEN) for b in range(2)),
        row(446, 130, 43, [8, 9], GREEN) + row(544, 130, 43, ["", ""], GREY),
        *(arrow(x + 210 * b, 98, x + 210 * b, 128) for x in (47, 96, 145, 194) for b in range(3)),
        text(20, 182, "elements: i = blockIdx.x * blockDim.x + threadIdx.x"),
        text(640, 182, "n = 10: threads 10 and 11 do nothing", "end"),
    ),
    "2-timing": picture(
        160,
        text(20, 60, "CPU") + row(80, 40, 64, ["launch 1", "launch 2", "launch 3"], ORANGE),
        text(20, 120, "GPU") + row(140, 100, 154, ["kernel 1", "kernel 2", "kernel 3"]),
        *(arrow(112 + 70 * i, 70, 146 + 160 * i, 98) for i in range(3)),
        text(300, 20, "without synchronize, time.time() is read here") + arrow(294, 14, 288, 68),
        text(596, 152, "the results are there", "end") + arrow(604, 148, 614, 132),
    ),
    "3-sums": picture(
        262,
        *(row(20, 14 + 62 * i, 72, [""] * 8, GREY) for i in range(4)),
        *(row(20, 14 + 62 * i, 72, [f"{2**i} of 8"] * (8 >> i), GREEN) for i in range(4)),
        *(arrow(56 + 78 * (t + 4), 44, 56 + 78 * t, 74) for t in range(4)),
        *(arrow(56 + 78 * (t + 2), 106, 56 + 78 * t, 136) for t in range(2)),
        arrow(134, 168, 56, 198),
        text(20, 250, "thread t adds the number of thread t + 4, then t + 2, then t + 1"),
    ),
    "4-fusing": picture(
        140,
        text(20, 34, "3 * x - y"),
        row(120, 14, 98, ["read x", "write 3x", "read 3x", "read y", "write z"], ORANGE),
        text(20, 84, "one kernel") + row(120, 64, 98, ["read x", "read y", "write z"], GREEN),
        text(120, 126, "each box: 1 GiB at 2^28 floats, and about 0.25 ms on an H200"),
    ),
    "5-gradients": picture(
        180,
        text(20, 40, "forward") + row(110, 20, 90, ["x"]) + row(290, 20, 90, ["sigmoid"], GREEN),
        row(470, 20, 90, ["y"]) + arrow(200, 35, 288, 35) + arrow(380, 35, 468, 35),
        text(20, 140, "backward") + row(110, 120, 90, ["g y (1 - y)"]) + row(470, 120, 90, ["g"]),
        row(290, 120, 90, ["backward"], ORANGE) + arrow(468, 135, 382, 135),
        arrow(288, 135, 202, 135) + arrow(515, 50, 350, 118),
        text(450, 90, "save_for_backward(y)"),
    ),
    "6-trilinear": picture(
        150,
        text(20, 24, "x is the cell: 16 sectors of 32 bytes, far apart; 2 of 8 floats are used"),
        row(20, 34, 46, [""] * 12, GREY),
        *(box(20 + 208 * t, 34, 46, f"t {t}, {16 + t}", ORANGE) for t in range(3)),
        text(20, 94, "x is the feature: 2 sectors in each of two cells; all 8 floats are used"),
        row(20, 104, 46, [""] * 12, GREY) + row(20, 104, 46, ["t 0-7", "8-15"], GREEN),
        row(436, 104, 46, ["16-23", "24-31"], GREEN),
    ),
    "7-lltm": picture(
        150,
        text(20, 34, "CPU") + row(70, 14, 56, ["launch"] * 9, ORANGE),
        text(20, 68, "GPU"),
        *(box(126 + 62 * i, 48, 16, fill=GREEN) for i in range(9)),
        text(20, 108, "CPU") + box(70, 88, 56, "replay", ORANGE) + text(140, 108, "a CUDA graph"),
        text(20, 142, "GPU") + row(126, 118, 16, [""] * 9, GREEN),
    ),
    "8-ways-to-build": picture(
        130,
        text(20, 34, "PyTorch, same process")
        + row(200, 14, 98, ["text: sources", "flags"], ORANGE),
        text(20, 74, "ninja") + row(200, 54, 98, ["time: sources", "headers", "flags"], ORANGE),
        text(20, 114, "this project"),
        row(200, 94, 98, ["text: sources", "headers", "flags", "compilers"], GREEN),
    ),
    "9-wrong-or-slow": picture(
        100,
        row(
            30, 14, 100, ["right?", "which line?", "fast?", "what is used?", "what waits?"], "none"
        ),
        row(30, 50, 100, ["compare", "check", "measure", "inspect", "ncu"], GREEN),
        *(arrow(130 + 106 * i, 65, 135 + 106 * i, 65) for i in range(4)),
    ),
}

if __name__ == "__main__":
    for name, svg in PICTURES.items():
        Path(__file__).with_name(f"{name}.svg").write_text(svg)
