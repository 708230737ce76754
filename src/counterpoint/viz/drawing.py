"""A drawing as plain data in pixels (y downwards), and its conversion to pixels and to SVG.

The renderer decides once how a picture looks, so the raster and the vector version agree.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Literal, NamedTuple
from xml.sax.saxutils import escape

from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int] | tuple[int, int, int, int]
"""Red, green, blue and, unless opaque, opacity, each in 0..255."""
Real = float | int
"""Coordinates may be integers (in grid worlds), which the type checks of the tests distinguish from floats."""
Point = tuple[Real, Real]

OVERSAMPLE = 3
PLAIN = str.maketrans({"−": "-", "–": "-", "×": "x"})
"""Replacements for characters that Pillow's font lacks."""


class Disc(NamedTuple):
    x: float
    y: float
    radius: float
    fill: Colour | None
    edge: Colour | None = None
    width: float = 1.0


class Area(NamedTuple):
    points: tuple[Point, ...]
    fill: Colour | None
    edge: Colour | None = None
    width: float = 1.0


class Stroke(NamedTuple):
    """A line with round ends. Opaque colours only: translucent joints would show."""

    points: tuple[Point, ...]
    colour: Colour
    width: float


class Rectangle(NamedTuple):
    """An opaque rectangle from its upper left to its lower right corner, optionally with rounded corners."""

    x0: float
    y0: float
    x1: float
    y1: float
    fill: Colour
    edge: Colour | None = None
    width: float = 1.0
    corner: float = 0.0


class Text(NamedTuple):
    """One line of text; (x, y) is at half its height, at its start or its middle."""

    x: float
    y: float
    string: str
    size: float
    colour: Colour
    align: Literal["start", "middle"] = "middle"


class Group(NamedTuple):
    """Starts a named group of the marks that follow: an element in SVG, nothing in pixels."""

    name: str


Mark = Disc | Area | Stroke | Rectangle | Text | Group


class Sketch(NamedTuple):
    """Marks in painting order on a white page of this size."""

    width: int
    height: int
    marks: tuple[Mark, ...]


@cache
def _font(size: Real) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=size)


@cache
def text_width(string: str, size: Real) -> Real:
    """Returns the width of a line of text in pixels."""
    return _font(100.0).getlength(string.translate(PLAIN)) * size / 100


def raster(sketch: Sketch) -> Image.Image:
    """Returns the sketch as pixels, smoothed by drawing it larger and averaging."""
    image = Image.new("RGB", (sketch.width * OVERSAMPLE, sketch.height * OVERSAMPLE), "white")
    pen = ImageDraw.Draw(image, "RGBA")
    for mark in sketch.marks:
        if isinstance(mark, Rectangle) and not mark.edge and not mark.corner:
            x0, y0, x1, y1 = (round(OVERSAMPLE * side) for side in (mark.x0, mark.y0, mark.x1, mark.y1))
            image.paste(mark.fill, (x0, y0, x1, y1))  # ten times as fast as blending
        else:
            _ink(pen, mark, OVERSAMPLE)
    return image.reduce(OVERSAMPLE)


def _ink(pen: ImageDraw.ImageDraw, mark: Mark, k: int) -> None:
    """Draws one mark, magnified k times."""
    match mark:
        case Disc(x, y, radius, fill, edge, width):
            outline = max(1, round(width * k)) if edge else 0
            reach = radius * k + outline / 2  # the edge is centred on the rim, as in SVG
            pen.ellipse((x * k - reach, y * k - reach, x * k + reach, y * k + reach), fill, edge, outline)
        case Area(points, fill, edge, width):
            scaled = [(x * k, y * k) for x, y in points]
            if fill:
                pen.polygon(scaled, fill)
            if edge:
                pen.line([*scaled, *scaled[:2]], edge, max(1, round(width * k)), joint="curve")
        case Stroke(points, colour, width):
            scaled, reach = [(x * k, y * k) for x, y in points], width * k / 2
            pen.line(scaled, colour, max(1, round(width * k)), joint="curve")
            for x, y in (scaled[0], scaled[-1]):
                pen.ellipse((x - reach, y - reach, x + reach, y + reach), colour)
        case Rectangle(x0, y0, x1, y1, fill, edge, width, corner):
            outline = max(1, round(width * k)) if edge else 0
            # Pillow includes the last pixel, so a rectangle of n pixels ends at n - 1.
            pen.rounded_rectangle((x0 * k, y0 * k, x1 * k - 1, y1 * k - 1), corner * k, fill, edge, outline)
        case Text(x, y, string, size, colour, align):
            pen.text(
                (x * k, y * k), string.translate(PLAIN), colour, _font(size * k), anchor="lm" if align == "start" else "mm"
            )
        case Group():
            pass


def vector(sketches: Sequence[tuple[Point, Sketch]], width: int, height: int) -> str:
    """Returns an SVG page with each sketch placed by its upper left corner."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="Helvetica, Arial, sans-serif">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for (x, y), sketch in sketches:
        # A nested svg clips marks that would cover neighbouring sketches.
        lines.append(f'<svg x="{_num(x)}" y="{_num(y)}" width="{sketch.width}" height="{sketch.height}">')
        lines += _groups(sketch.marks)
        lines.append("</svg>")
    return "\n".join([*lines, "</svg>", ""])


def _groups(marks: Iterable[Mark]) -> list[str]:
    """Returns SVG elements, nested in their groups."""
    lines = ["<g>"]
    for mark in marks:
        lines += ["</g>", f'<g class="{mark.name}">'] if isinstance(mark, Group) else [_element(mark)]
    return [*lines, "</g>"]


def _element(mark: Mark) -> str:
    match mark:
        case Disc(x, y, radius, fill, edge, width):
            return f'<circle cx="{_num(x)}" cy="{_num(y)}" r="{_num(radius)}"{_paint(fill, edge, width)}/>'
        case Area(points, fill, edge, width):
            return f'<polygon points="{_points(points)}"{_paint(fill, edge, width)} stroke-linejoin="round"/>'
        case Stroke(points, colour, width):
            paint = _paint(None, colour, width)
            return f'<polyline points="{_points(points)}"{paint} stroke-linecap="round" stroke-linejoin="round"/>'
        case Rectangle(x0, y0, x1, y1, fill, edge, width, corner):
            place = f'x="{_num(x0)}" y="{_num(y0)}" width="{_num(x1 - x0)}" height="{_num(y1 - y0)}" rx="{_num(corner)}"'
            return f"<rect {place}{_paint(fill, edge, width)}/>"
        case Text(x, y, string, size, colour, align):
            # The viewer's font differs from ours: textLength keeps a wider one from overlapping its neighbours.
            place = f'x="{_num(x)}" y="{_num(y)}" dy="0.35em" font-size="{_num(size)}" text-anchor="{align}"'
            place += f' textLength="{_num(text_width(string, size))}" lengthAdjust="spacingAndGlyphs"'
            return f"<text {place}{_paint(colour, None, 0)}>{escape(string)}</text>"
    raise TypeError(f"{mark!r} has no SVG element")


def _paint(fill: Colour | None, edge: Colour | None, width: Real) -> str:
    """Returns the SVG attributes for fill and stroke."""
    parts = ['fill="none"'] if fill is None else [f'fill="{_hex(fill)}"', *_opacity("fill", fill)]
    if edge is not None:
        parts += [f'stroke="{_hex(edge)}"', *_opacity("stroke", edge), f'stroke-width="{_num(width)}"']
    return " " + " ".join(parts)


def _opacity(what: str, colour: Colour) -> list[str]:
    return [f'{what}-opacity="{_num(colour[3] / 255)}"'] if len(colour) == 4 and colour[3] < 255 else []


def _hex(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour[:3])


def _points(points: Iterable[Point]) -> str:
    return " ".join(f"{_num(x)},{_num(y)}" for x, y in points)


def _num(value: Real) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
