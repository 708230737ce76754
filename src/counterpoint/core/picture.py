"""Pictures: plain data between a world (`draw`) and the renderer. Coordinates are the world's own, y upwards."""

from typing import NamedTuple


class Circle(NamedTuple):
    """A disc; `heading` (radians) draws a nose, `trail` names a body whose past positions are drawn behind it."""

    x: float
    y: float
    radius: float
    role: str
    """Colour by meaning: an agent's role, or "landmark", "goal", "obstacle", "food", "forest", "ball"."""
    label: str = ""
    heading: float | None = None
    trail: str = ""
    owner: str = ""
    """The role whose goal this is: it wears that role's colour."""


class Polygon(NamedTuple):
    points: tuple[tuple[float, float], ...]
    role: str
    label: str = ""
    owner: str = ""
    """As of a circle."""


class Line(NamedTuple):
    points: tuple[tuple[float, float], ...]
    role: str
    width: float = 0.01


class Speech(NamedTuple):
    """A message beside its speaker at (x, y): the strength of each word, 0..1."""

    x: float
    y: float
    role: str
    words: tuple[float, ...]


Shape = Circle | Polygon | Line | Speech


class Picture(NamedTuple):
    """Shapes in painting order inside a window, with a caption of a few words (goal, score, clock)."""

    window: tuple[float, float, float, float]
    """x_min, y_min, x_max, y_max."""
    shapes: tuple[Shape, ...]
    caption: str = ""
