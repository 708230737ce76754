"""Pictures: plain data that an environment's `draw` returns and the renderer reads. Coordinates are its own, with y upwards."""

from typing import NamedTuple


class Circle(NamedTuple):
    """A disc; `heading` (radians) adds a nose, `trail` names a body whose past positions are drawn behind it."""

    x: float
    y: float
    radius: float
    role: str
    """Determines the colour: an agent's role, or "landmark", "goal", "obstacle", "food", "forest", "ball"."""
    label: str = ""
    heading: float | None = None
    trail: str = ""
    owner: str = ""
    """The role whose goal this is; the body takes that role's colour."""


class Polygon(NamedTuple):
    """A filled polygon."""

    points: tuple[tuple[float, float], ...]
    role: str
    label: str = ""
    owner: str = ""
    """The role whose goal this is, as for a circle."""


class Line(NamedTuple):
    """A line through points; `width` is in units of the picture."""

    points: tuple[tuple[float, float], ...]
    role: str
    width: float = 0.01


class Speech(NamedTuple):
    """A message of the speaker at (x, y); `words` are the strengths of the words, 0..1."""

    x: float
    y: float
    role: str
    words: tuple[float, ...]


Shape = Circle | Polygon | Line | Speech


class Picture(NamedTuple):
    """Shapes in painting order inside a window, with a short caption (goal, score, clock)."""

    window: tuple[float, float, float, float]
    """x_min, y_min, x_max, y_max."""
    shapes: tuple[Shape, ...]
    caption: str = ""
