"""Draws the pictures of the chapters: `python docs/learn/draw.py` writes an SVG file for each."""

from html import escape
from pathlib import Path

BLUE, GREEN, ORANGE, GREY = "#cfe2f9", "#cdebd3", "#fbdfb6", "#e6e6e6"


def text(x, y, words, size=14, anchor="middle"):
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}">{escape(words)}</text>'


def box(x, y, width, height, words="", fill=BLUE, size=14):
    shape = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3" fill="{fill}"'
    return f'{shape} stroke="#555"/>' + text(x + width / 2, y + height / 2 + size / 3, words, size)


def arrow(x1, y1, x2, y2):
    line = f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#555"'
    return f'{line} stroke-width="1.5" marker-end="url(#head)"/>'


def bars(rows, unit, y=20, x=170, longest=360):
    """A bar for each (label, value), the largest `longest` pixels long."""
    largest = max(value for _, value in rows)
    for number, (label, value) in enumerate(rows):
        top, width = y + 34 * number, round(longest * value / largest)
        yield text(x - 10, top + 17, label, anchor="end")
        yield box(x, top, width, 24, fill=GREEN)
        yield text(x + width + 8, top + 17, f"{value:,} {unit}", anchor="start")


def picture(width, height, *parts):
    head = '<path d="M0 0 8 4 0 8z" fill="#555"/>'
    marker = '<marker id="head" markerWidth="8" markerHeight="8" refX="8" refY="4" orient="auto">'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" fill="#222">',
        f"<defs>{marker}{head}</marker></defs>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *parts,
        "</svg>\n",
    ]
    return "\n".join(lines)


PICTURES = {
    "1-first-kernel": picture(
        660,
        190,
        text(20, 26, "grid: 3 blocks (gridDim.x = 3)", anchor="start"),
        *(
            box(20 + 210 * b, 40, 200, 66, fill=GREY)
            + text(120 + 210 * b, 58, f"block {b}: 4 threads", 13)
            + "".join(
                box(28 + 210 * b + 47 * t, 66, 43, 32, f"t {t}", size=13)
                + arrow(49 + 210 * b + 47 * t, 98, 49 + 210 * b + 47 * t, 128)
                + box(28 + 210 * b + 47 * t, 130, 43, 28, f"{4 * b + t}", fill, 13)
                for t, fill in enumerate([GREEN] * 4 if b < 2 else [GREEN, GREEN, GREY, GREY])
            )
            for b in range(3)
        ),
        text(20, 180, "elements of c: i = blockIdx.x * blockDim.x + threadIdx.x", 13, "start"),
        text(640, 180, "n = 10: threads with i >= n do nothing", 13, "end"),
    ),
}

if __name__ == "__main__":
    for name, svg in PICTURES.items():
        Path(__file__).with_name(f"{name}.svg").write_text(svg)
