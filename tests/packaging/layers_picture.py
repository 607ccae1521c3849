"""Draws layers and a request's way: python -m tests.packaging.layers_picture writes layers.svg."""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

from tests.packaging.layers import LAYERS, WAY

TARGET = Path(__file__).resolve().parents[2] / "docs" / "_static" / "layers.svg"
BAR, GAP, LEFT, STEP, HEAD, MOST = 44, 6, 560, 62, 40, 76
STYLE = """
text { font: 13px sans-serif; fill: #1b1f24 } .name { font-weight: bold }
.does { font-size: 11px; fill: #57606a } .stop { font-weight: bold; fill: #ffffff }
.what { font-size: 11px } rect.bar { fill: #eef2f6; stroke: #c5ccd3 }
circle { fill: #0b5cad } path { stroke: #0b5cad; stroke-width: 2; fill: none }
"""


def svg() -> str:
    """Return the picture: the highest layer at the top, the stops from left to right."""
    width = LEFT + STEP * len(WAY) + 20
    height = HEAD + (BAR + GAP) * len(LAYERS) + 28 + 16 * ((len(WAY) + 2) // 3)
    names = [layer.name for layer in LAYERS]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>The layers of orsched, and the way of a request through them</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(12, 24, "Layers: each imports itself and what is below it", "name"),
        _text(LEFT, 24, "The way of a request", "name"),
    ]
    for place, layer in enumerate(LAYERS):
        y = _top(place)
        parts += [
            f'<rect class="bar" x="8" y="{y}" width="{width - 16}" height="{BAR}" rx="4"/>',
            _text(16, y + 18, layer.name, "name", ", ".join(layer.modules)),
            _text(16, y + 35, layer.does, "does"),
        ]
    points = [
        (LEFT + STEP * place + 16, _top(names.index(stop.layer)) + BAR // 2)
        for place, stop in enumerate(WAY)
    ]
    parts.append(f'<path d="M{" L".join(f"{x} {y}" for x, y in points)}"/>')
    for place, (x, y) in enumerate(points):
        parts += [
            f'<circle cx="{x}" cy="{y}" r="12"/>',
            f'<text class="stop" x="{x}" y="{y + 4}" text-anchor="middle">{place + 1}</text>',
        ]
    below = HEAD + (BAR + GAP) * len(LAYERS) + 18
    for place, stop in enumerate(WAY):
        column, line = divmod(place, (len(WAY) + 2) // 3)
        text = f"{place + 1}  {stop.what}"
        parts.append(_text(16 + column * (width // 3), below + 16 * line, text, "what"))
    return "\n".join([*parts, "</svg>", ""])


def _top(place: int) -> int:
    """Return the upper edge of a layer's bar; the lowest layer is at the bottom."""
    return HEAD + (BAR + GAP) * (len(LAYERS) - 1 - place)


def _text(x: int, y: int, text: str, kind: str, more: str = "") -> str:
    if len(more) > MOST:
        more = f"{more[: more.rfind(',', 0, MOST)]}, ..."
    beside = f'<tspan class="does" dx="10">{escape(more)}</tspan>' if more else ""
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}{beside}</text>'


def main() -> int:
    TARGET.write_text(svg(), encoding="utf-8")
    print(TARGET)
    return 0


if __name__ == "__main__":
    sys.exit(main())
