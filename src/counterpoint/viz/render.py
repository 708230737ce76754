"""Pictures as PNG, SVG, GIF and MP4 files. Rendering needs neither a display nor jax.

An episode is a list of pictures. Bodies that name a `trail` draw their last steps behind them, and the view grows until every
body is inside. Each role has a colour, and colour-blind readers can distinguish them (after Paul Tol's bright scheme).
"""

import io
import math
import os
import re
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from counterpoint.core.errors import UsageError
from counterpoint.core.picture import Circle, Line, Picture, Polygon, Shape, Speech
from counterpoint.runs.files import write_whole
from counterpoint.viz.drawing import (
    Area,
    Disc,
    Group,
    Mark,
    Point,
    Real,
    Rectangle,
    Sketch,
    Stroke,
    Text,
    raster,
    text_width,
    vector,
)

Rgb = tuple[int, int, int]
View = tuple[Real, Real, Real, Real]

WHITE, INK, GREY = (255, 255, 255), (50, 54, 62), (110, 114, 122)
GROUND, BEYOND = (247, 247, 244), (236, 236, 232)
"""Background inside the picture's own view, and outside where the view had to grow."""

BLUE, RED, PURPLE, GREEN = (82, 130, 184), (232, 108, 114), (158, 74, 138), (62, 142, 84)
YELLOW, CYAN, GOLD, STONE = (210, 188, 72), (108, 192, 222), (226, 164, 38), (140, 143, 150)
ROLES: dict[str, Rgb] = {
    "agent": BLUE,
    "adversary": RED,
    "leadadversary": PURPLE,
    "eve": RED,
    "bob": BLUE,
    "alice": GREEN,
    "speaker": PURPLE,
    "listener": BLUE,
    "racket": BLUE,
    "collector": (168, 170, 176),
    "kind_0": RED,
    "kind_1": BLUE,
    "kind_2": GREEN,
    "kind_3": YELLOW,
    "kind_4": PURPLE,
    "kind_5": CYAN,
    "agent_0": RED,
    "agent_1": BLUE,
    "agent_2": GREEN,
    "agent_3": YELLOW,
    "landmark": (168, 170, 176),
    "goal": GOLD,
    "obstacle": (122, 126, 134),
    "food": (176, 190, 60),
    "forest": GREEN,
    "ball": (216, 200, 52),
    "wall": (84, 88, 96),
    "line": (190, 192, 196),
    "court": (206, 214, 206),
    "net": (150, 154, 162),
    "cell": (234, 235, 236),
    "grid": (234, 235, 236),
}
STRUCTURE = ("wall", "line", "court", "net", "cell", "grid")
"""Roles that need no entry in the legend."""

TRAIL_LENGTH = 12
MOST_GROWTH = 4.0
"""The view grows at most by this factor; a body further out is drawn at the edge, so that the others stay visible."""
HOLD_SECONDS = 0.8
"""How long an animation pauses on the last picture of an episode."""
GIF_COLOURS = 64


class Layout(NamedTuple):
    """Where the picture lies on the page; a sequence shares one layout, so that nothing jumps."""

    window: View
    scale: float
    """Pixels per unit of length in the picture."""
    unit: float
    """Pixels per 1/480 of the requested size: fonts and line widths scale with the picture."""
    width: int
    top: int
    """Height of the caption."""
    bottom: int
    """Where the picture ends and the legend begins."""
    height: int
    legend: tuple[tuple[str, ...], ...]
    """Roles in the legend, by row."""

    def at(self, x: Real, y: Real) -> Point:
        """Returns a position of the picture in pixels, with y pointing down."""
        return (x - self.window[0]) * self.scale, self.top + (self.window[3] - y) * self.scale

    def pinned(self, x: Real, y: Real) -> Point:
        """Returns the same, moved to the edge if it lies outside the view."""
        x0, y0, x1, y1 = self.window
        return self.at(min(max(x, x0), x1), min(max(y, y0), y1))


def rgb(picture: Picture, size: int = 480, past: Sequence[Picture] = (), window: View | None = None) -> np.ndarray:
    """Returns a picture as [H, W, 3] bytes; `past` are the pictures before it, for trails; `window` is the least to show."""
    shown = [picture] if window is None else [picture._replace(window=window)]
    return np.array(raster(sketch(picture, layout([*past, *shown], size), past)))


def svg(picture: Picture, size: int = 480, past: Sequence[Picture] = ()) -> str:
    """Returns a picture as the text of an SVG file."""
    drawn = sketch(picture, layout([*past, picture], size), past)
    return vector([((0, 0), drawn)], drawn.width, drawn.height)


def save(episodes: Sequence[Sequence[Picture]], path: str | Path, fps: Real = 12, size: int = 480, moments: int = 6) -> None:
    """Writes episodes in the format of the path's suffix: .gif and .mp4 are animated, .png and .svg show a sheet of pictures.

    On a sheet each episode is a row of at most `moments` pictures that includes the last one; episodes of one picture each
    fill a square. `size` is the longer side of one picture in pixels, without caption and legend.
    """
    path = Path(path)
    writers: dict[str, Callable[[], bytes]] = {
        ".png": lambda: _png(episodes, size, moments),
        ".svg": lambda: _svg(episodes, size, moments),
        ".gif": lambda: _gif(_frames(episodes, size), fps),
    }
    suffix = path.suffix.lower()
    if suffix not in (*writers, ".mp4"):
        raise UsageError(f"cannot write {path}: the name must end in .png, .svg, .gif or .mp4.")
    if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise UsageError(f"cannot write {path}: {path.parent} is not a folder that you may write to: choose another.")
    if not any(episodes):
        raise UsageError(f"there is nothing to draw in {path}: give at least one picture.")
    if not fps > 0:
        raise UsageError(f"fps must be above 0, not {fps!r}.")
    if not moments >= 1:
        raise UsageError(f"moments must be at least 1, not {moments!r}.")
    episodes = [episode for episode in episodes if episode]
    if suffix == ".mp4":
        write_whole(path, lambda draft: _mp4(draft, _frames(episodes, size), fps))
    else:
        content = writers[suffix]()
        write_whole(path, lambda draft: draft.write_bytes(content))


def save_frames(episodes: Sequence[Sequence[np.ndarray]], path: str | Path, fps: Real = 12, size: int = 480) -> None:
    """Writes frames [H, W, 3] that an environment rendered as a .gif or .mp4 whose sides are at most `size` pixels."""
    path = Path(path)
    if path.suffix.lower() not in (".gif", ".mp4"):
        raise UsageError(f"cannot write {path}: the name must end in .gif or .mp4 for frames of an environment.")
    frames = [[_shrunk(frame, size) for frame in episode] for episode in episodes if episode]
    if path.suffix.lower() == ".mp4":
        write_whole(path, lambda draft: _mp4(draft, frames, fps))
    else:
        content = _gif(frames, fps)
        write_whole(path, lambda draft: draft.write_bytes(content))


def _shrunk(frame: np.ndarray, size: int) -> Image.Image:
    image = Image.fromarray(frame[..., :3])
    scale = min(1.0, size / max(image.size))
    width, height = (_even(scale * side) for side in image.size)
    return image.resize((width, height))


# --- Pictures become marks.


def layout(pictures: Sequence[Picture], size: int) -> Layout:
    """Returns a page that shows every body of the pictures, with `size` pixels along the longer side of the view."""
    if isinstance(size, bool) or not isinstance(size, int) or not 32 <= size <= 4096:
        raise UsageError(f"size must be a whole number of pixels from 32 to 4096, not {size!r}.")
    window = grow(pictures)
    across, up = window[2] - window[0], window[3] - window[1]
    scale, unit = size / max(across, up), max(size / 480, 0.6)
    width, view = _even(across * scale), _even(up * scale)
    top = _even(26 * unit) if any(picture.caption for picture in pictures) else 0
    legend = _rows(_roles(pictures), width, unit)
    bottom = top + view
    height = bottom + (_even((20 * len(legend) + 6) * unit) if legend else 0)
    return Layout(window, scale, unit, width, top, bottom, height, legend)


def grow(pictures: Sequence[Picture]) -> View:
    """Returns the smallest view of the same proportions that shows the pictures' windows and, up to MOST_GROWTH, all bodies."""
    windows = np.array([picture.window for picture in pictures], float)
    low, high = windows[:, :2].min(axis=0), windows[:, 2:].max(axis=0)
    side = high - low
    if not ((side > 0).all() and np.isfinite(side).all()):
        raise UsageError(f"a picture's window must be (x_min, y_min, x_max, y_max), not {pictures[0].window}.")
    boxes = [box for picture in pictures for shape in picture.shapes if (box := _extent(shape))]
    reach = np.array([*boxes, (*low, *high)])
    spare = side * (MOST_GROWTH - 1) / 2
    low, high = np.maximum(reach[:, :2].min(axis=0), low - spare), np.minimum(reach[:, 2:].max(axis=0), high + spare)
    grown = side * np.max((high - low) / side)
    middle = (low + high) / 2
    return (*(middle - grown / 2).tolist(), *(middle + grown / 2).tolist())


def _extent(shape: Shape) -> View | None:
    """Returns the area that a shape covers, with a small margin, or None if it has no position."""
    match shape:
        case Circle(x=x, y=y, radius=radius):
            box = (x - 1.3 * radius, y - 1.3 * radius, x + 1.3 * radius, y + 1.3 * radius)
        case Speech(x=x, y=y):
            box = (x, y, x, y)
        case Polygon(points=()) | Line(points=()):
            return None
        case Polygon(points=points) | Line(points=points):
            xs, ys = zip(*points, strict=True)
            box = (min(xs), min(ys), max(xs), max(ys))
    return box if all(map(math.isfinite, box)) else None


def sketch(picture: Picture, page: Layout, past: Sequence[Picture] = ()) -> Sketch:
    """Returns the marks of one picture on a page."""
    shapes = [shape for shape in picture.shapes if _extent(shape)]
    home = (*page.at(picture.window[0], picture.window[3]), *page.at(picture.window[2], picture.window[1]))
    marks: list[Mark] = [Group("ground"), Rectangle(0, page.top, page.width, page.bottom, BEYOND), Rectangle(*home, GROUND)]
    marks += [Group("trails"), *_trails([*past[-TRAIL_LENGTH:], picture], page)]
    marks.append(Group("world"))
    for shape in shapes:
        marks += _body(shape, page)
    marks += [Group("speech"), *_bubbles(shapes, page), Group("text"), *_margins(picture.caption, page)]
    return Sketch(page.width, page.height, tuple(marks))


def colour_of(role: str) -> Rgb:
    """Returns a role's colour; an unknown role always gets the same one."""
    if role in ROLES:
        return ROLES[role]
    spare = (CYAN, PURPLE, YELLOW, GREEN, BLUE, RED, STONE)
    return spare[zlib.crc32(role.encode()) % len(spare)]


def _body(shape: Shape, page: Layout) -> list[Mark]:
    match shape:
        case Circle(x, y, radius, role, label, heading, owner=owner):
            place, pixels = page.pinned(x, y), max(radius * page.scale, 2.0)
            body = _disc(*place, pixels, role, page.unit, heading, owner)
            return [*body, *_label(*place, pixels, role, label, page.unit)]
        case Polygon(points, role, label, owner):
            corners = tuple(page.at(x, y) for x, y in points)
            (x, y), (width, height) = np.mean(corners, axis=0).tolist(), np.ptp(corners, axis=0).tolist()
            half = min(width, height) / 2
            marks: list[Mark] = [_area(corners, owner or role, role, page.unit)]
            if role == "goal":
                marks.append(Area(_star(x, y, 0.55 * half), colour_of(owner or role)))
            return [*marks, *_label(x, y, half, role, label, page.unit)]
        case Line(points, role, width):
            return [Stroke(tuple(page.at(x, y) for x, y in points), colour_of(role), max(width * page.scale, page.unit))]
        case Speech():
            return []  # bubbles cover the bodies: see _bubbles


def _disc(x: Real, y: Real, radius: Real, role: str, unit: Real, heading: Real | None = None, owner: str = "") -> list[Mark]:
    """Draws a goal as a ring with a star, a forest as a translucent disc, any other body as a disc with an optional nose."""
    colour = colour_of(owner or role)
    edge, width = mix(colour, INK, 0.35), 1.2 * unit
    if role == "goal":
        ring = max(radius, 6 * unit)
        return [Disc(x, y, ring, WHITE, colour, 1.6 * unit), Area(_star(x, y, 0.78 * ring), colour)]
    if role == "forest":
        return [Disc(x, y, radius, (*colour, 70), (*colour, 130), width)]
    nose: list[Mark] = []
    if heading is not None and math.isfinite(heading):
        reach = 1.2 + max(0.25, 3.5 * unit / radius)  # the nose of a small body must remain visible
        turns = ((0.0, reach), (0.45, 1.0), (-0.45, 1.0))
        tip = tuple((x + r * radius * math.cos(heading + a), y - r * radius * math.sin(heading + a)) for a, r in turns)
        nose.append(Area(tip, edge))
    return [*nose, Disc(x, y, radius, colour, edge, width)]


def _area(corners: tuple[Point, ...], owner: str, role: str, unit: Real) -> Area:
    colour = colour_of(owner)
    if role in ("cell", "grid"):
        return Area(corners, WHITE, mix(colour, INK, 0.12), unit)
    if role in ("goal", "forest"):
        return Area(corners, (*colour, 70), colour, 1.4 * unit)
    return Area(corners, colour, colour if role == "wall" else mix(colour, INK, 0.35), 1.2 * unit)


def _star(x: Real, y: Real, radius: Real) -> tuple[Point, ...]:
    angles = [math.pi * (i / 5 - 0.5) for i in range(10)]
    reach = [radius, 0.45 * radius] * 5
    return tuple((x + r * math.cos(a), y + r * math.sin(a)) for a, r in zip(angles, reach, strict=True))


def _label(x: Real, y: Real, radius: Real, role: str, label: str, unit: Real) -> list[Mark]:
    """Labels a body with its number if the legend names its role, else with its name; inside if it fits, else below."""
    numbered = re.fullmatch(r"(.+)_(\d+)", label)
    text = numbered[2] if numbered and role in (label, numbered[1]) else label
    if not text:
        return []
    if role == "goal":  # the star occupies the middle
        return [Text(x + 0.75 * radius, y + 0.75 * radius, text, 10 * unit, GREY)]
    size = min(11 * unit, 1.35 * radius)
    if size >= 8 * unit and text_width(text, size) < 1.7 * radius:
        colour = colour_of(role)
        light = 0.3 * colour[0] + 0.59 * colour[1] + 0.11 * colour[2]
        return [Text(x, y, text, size, INK if light > 160 or role in ("forest", "cell", "grid") else WHITE)]
    return [Text(x, y + radius + 8 * unit, text, 10 * unit, GREY)]


def _trails(pictures: Sequence[Picture], page: Layout) -> list[Mark]:
    """Draws the past positions of bodies with a trail, thinner and paler with age."""
    paths: dict[str, list[Point]] = {}
    bodies: dict[str, Circle] = {}
    for picture in pictures:
        for shape in picture.shapes:
            if isinstance(shape, Circle) and shape.trail and _extent(shape):
                paths.setdefault(shape.trail, []).append(page.pinned(shape.x, shape.y))
                bodies[shape.trail] = shape
    marks: list[Mark] = []
    for age in range(TRAIL_LENGTH, 0, -1):  # older pieces of all bodies first, so that they cover no newer ones
        fresh = 1 - age / (TRAIL_LENGTH + 1)
        for name, path in paths.items():
            if age < len(path):
                width = min(2 * bodies[name].radius * page.scale, 9 * page.unit) * (0.25 + 0.5 * fresh)
                shade = mix(GROUND, colour_of(bodies[name].role), 0.08 + 0.5 * fresh)
                marks.append(Stroke((path[-age - 1], path[-age]), shade, width))
    return marks


def _bubbles(shapes: Sequence[Shape], page: Layout) -> list[Mark]:
    """Draws messages: the letter of the strongest word, fainter if it is weak, and a bar for every word."""
    unit, marks, taken = page.unit, [], []
    bodies = [(*page.pinned(s.x, s.y), s.radius * page.scale) for s in shapes if isinstance(s, Circle) and s.role != "forest"]
    for speech in (s for s in shapes if isinstance(s, Speech)):
        words = np.clip(np.nan_to_num(np.array(speech.words, float)), 0, 1)
        if not words.size or words.max() < 0.01:
            continue
        x, y = page.pinned(speech.x, speech.y)
        radius = max([r for bx, by, r in bodies if math.hypot(bx - x, by - y) < 1], default=0.0)
        width, height = (20 + 3.5 * len(words) + 4) * unit, 20 * unit
        corner = _free_corner(x, y, radius + 7 * unit, width, height, [*taken, *_boxes(bodies)], page)
        taken.append((*corner, corner[0] + width, corner[1] + height))
        marks += _bubble(corner, (width, height), (x, y), radius, words, colour_of(speech.role), unit)
    return marks


def _bubble(
    corner: Point, extent: Point, speaker: Point, radius: Real, words: np.ndarray, colour: Rgb, unit: Real
) -> list[Mark]:
    (left, top), (width, height), (x, y) = corner, extent, speaker
    edge, middle = mix(colour, INK, 0.2), top + height / 2
    root = min(max(x, left + 6 * unit), left + width - 6 * unit)
    side = top + (height - unit if middle < y else unit)
    away = math.hypot(root - x, side - y) or 1.0
    tip = (x + (root - x) * (radius + 1.5 * unit) / away, y + (side - y) * (radius + 1.5 * unit) / away)
    tail = ((root - 3 * unit, side), tip, (root + 3 * unit, side))
    best = int(words.argmax())
    letter = chr(ord("A") + best) if best < 26 else str(best)
    marks: list[Mark] = [
        Area(tail, WHITE, edge, 1.2 * unit),
        Rectangle(left, top, left + width, top + height, WHITE, edge, 1.2 * unit, 6 * unit),
        Area((tail[0], (tip[0] * 0.3 + root * 0.7, tip[1] * 0.3 + side * 0.7), tail[2]), WHITE),
        Text(left + 11 * unit, middle, letter, 13 * unit, mix(WHITE, INK, 0.25 + 0.75 * float(words[best]))),
    ]
    for i, word in enumerate(words.tolist()):
        start, foot = left + (20 + 3.5 * i) * unit, top + height - 5 * unit
        tall = max(10 * word, 1.0) * unit
        shade = colour if i == best else mix(WHITE, colour, 0.55)
        marks.append(Rectangle(start, foot - tall, start + 2.5 * unit, foot, shade))
    return marks


def _boxes(bodies: Iterable[tuple[Real, Real, Real]]) -> list[View]:
    return [(x - r, y - r, x + r, y + r) for x, y, r in bodies]


def _free_corner(x: Real, y: Real, gap: Real, width: Real, height: Real, taken: Sequence[View], page: Layout) -> Point:
    """Returns the upper left corner of a bubble that stays on the page and covers least, preferably above and to the right."""
    shift = 0.6 * gap
    places = [(x + shift - 8 * page.unit, y - gap - height), (x - shift - width + 8 * page.unit, y - gap - height)]
    places += [(left, y + gap) for left, _ in places]
    pad = 2 * page.unit
    inside = [
        (min(max(left, pad), page.width - width - pad), min(max(top, page.top + pad), page.bottom - height - pad))
        for left, top in places
    ]

    def covered(place: Point) -> Real:
        left, top = place
        sides = ((min(left + width, x1) - max(left, x0), min(top + height, y1) - max(top, y0)) for x0, y0, x1, y1 in taken)
        return sum(a * b for a, b in sides if a > 0 and b > 0)

    return min(inside, key=covered)


# --- Caption and legend.


def _margins(caption: str, page: Layout) -> list[Mark]:
    unit = page.unit
    marks: list[Mark] = [Rectangle(0, 0, page.width, page.top, WHITE)] if page.top else []
    if caption:
        size = 13 * unit * min(1.0, (page.width - 24 * unit) / text_width(caption, 13 * unit))
        title, _, rest = caption.partition("  ")  # two spaces separate the environment's name from score and clock
        marks.append(Text(8 * unit, page.top / 2, title, size, INK, "start"))
        marks.append(Text(16 * unit + text_width(title, size), page.top / 2, rest, size, GREY, "start"))
    if page.legend:
        marks += [Group("legend"), Rectangle(0, page.bottom, page.width, page.height, WHITE)]
    for row, roles in enumerate(page.legend):
        x, y = 8 * unit, page.bottom + (13 + 20 * row) * unit
        for role in roles:
            marks += _disc(x + 6 * unit, y, (4.5 if role != "goal" else 5.5) * unit, role, unit)
            marks.append(Text(x + 15 * unit, y, role, 11 * unit, GREY, "start"))
            x += _entry_width(role, unit)
    return marks


def _roles(pictures: Sequence[Picture]) -> list[str]:
    """Returns the roles in order of first appearance, agents (bodies with a label) before other bodies."""
    bodies = [s for picture in pictures for s in picture.shapes if isinstance(s, Circle | Polygon) and s.role not in STRUCTURE]
    return list(dict.fromkeys(s.role for s in sorted(bodies, key=lambda body: not body.label or body.role == "goal")))


def _rows(roles: Iterable[str], width: int, unit: Real) -> tuple[tuple[str, ...], ...]:
    """Returns the roles in rows that fit the page."""
    rows: list[list[str]] = []
    room = 0.0
    for role in roles:
        if not rows or _entry_width(role, unit) > room:
            rows, room = [*rows, []], width - 8 * unit
        rows[-1].append(role)
        room -= _entry_width(role, unit)
    return tuple(map(tuple, rows))


def _entry_width(role: str, unit: Real) -> Real:
    return text_width(role, 11 * unit) + 27 * unit


def mix(a: Rgb, b: Rgb, share: Real) -> Rgb:
    """Returns the colour between a and b at this share of the way."""
    red, green, blue = (round(x + (y - x) * share) for x, y in zip(a, b, strict=True))
    return red, green, blue


def _even(pixels: Real) -> int:
    """Returns the nearest even number, because video needs even sides."""
    return max(2 * round(pixels / 2), 2)


# --- Sketches become files.


def _sketches(episode: Sequence[Picture], page: Layout) -> list[Sketch]:
    """Returns a sketch of each picture of an episode, with the trails of the pictures before it."""
    return [sketch(picture, page, episode[max(0, i - TRAIL_LENGTH) : i]) for i, picture in enumerate(episode)]


def _frames(episodes: Sequence[Sequence[Picture]], size: int) -> list[list[Image.Image]]:
    """Returns the frames of an animation; all episodes share one page."""
    page = layout([picture for episode in episodes for picture in episode], size)
    return [[raster(drawn) for drawn in _sketches(episode, page)] for episode in episodes]


def _sheet(episodes: Sequence[Sequence[Picture]], size: int, moments: int) -> tuple[list[tuple[Point, Sketch]], int, int]:
    """Returns pictures and their positions: a row per episode, or a square if every episode has one picture."""
    rows = []
    for episode in episodes:
        last = len(episode) - 1
        count = min(len(episode), moments)
        page = layout(episode, size)
        drawn = _sketches(episode, page)
        rows.append([drawn[last - round(i * last / max(count - 1, 1))] for i in reversed(range(count))])
    if all(len(row) == 1 for row in rows):
        columns = math.ceil(math.sqrt(len(rows)))
        cells = [cell for row in rows for cell in row]
        rows = [cells[i : i + columns] for i in range(0, len(cells), columns)]
    gap = _even(12 * size / 480) if sum(map(len, rows)) > 1 else 0
    width = max(cell.width for row in rows for cell in row)
    placed, top = [], gap
    for row in rows:
        placed += [((gap + i * (width + gap), top), cell) for i, cell in enumerate(row)]
        top += max(cell.height for cell in row) + gap
    return placed, gap + max(map(len, rows)) * (width + gap), top


def _png(episodes: Sequence[Sequence[Picture]], size: int, moments: int) -> bytes:
    placed, width, height = _sheet(episodes, size, moments)
    image = Image.new("RGB", (width, height), "white")
    for (x, y), cell in placed:
        image.paste(raster(cell), (round(x), round(y)))
    return _encoded(image, format="PNG", optimize=True)


def _svg(episodes: Sequence[Sequence[Picture]], size: int, moments: int) -> bytes:
    return vector(*_sheet(episodes, size, moments)).encode()


def _gif(frames: Sequence[Sequence[Image.Image]], fps: Real) -> bytes:
    tick = max(20, 10 * round(100 / fps))  # the format counts in hundredths, and browsers slow down below 20 ms
    durations = [tick + round(1000 * HOLD_SECONDS) * (image is episode[-1]) for episode in frames for image in episode]
    images = [image for episode in frames for image in episode]
    images = _few_colours(images)
    return _encoded(images[0], format="GIF", save_all=True, append_images=images[1:], duration=durations, loop=0, disposal=1)


def _few_colours(images: Sequence[Image.Image]) -> list[Image.Image]:
    """Returns the images in one palette of the most common, clearly distinct colours.

    Flat areas stay exact and nothing flickers; Pillow's own mapping rounds colours first and shifts the pale background.
    """
    frames = [_packed(np.asarray(image)) for image in images]
    packed, count = np.unique(np.stack(frames[:: math.ceil(len(frames) / 8)]), return_counts=True)
    left = _channels(packed[np.argsort(-count, kind="stable")])
    palette = np.zeros((0, 3), int)
    while len(left) and len(palette) < GIF_COLOURS:
        palette = np.vstack([palette, left[:1]])
        left = left[np.abs(left - left[0]).sum(axis=1) > 10]
    nearest = np.full(1 << 24, 255, np.uint8)  # index by packed colour, filled as colours occur
    drawn = []
    for frame in frames:
        new = np.unique(frame[nearest[frame] == 255])
        nearest[new] = np.abs(_channels(new)[:, None] - palette).sum(axis=2).argmin(axis=1)
        drawn.append(Image.fromarray(nearest[frame]))
        drawn[-1].putpalette(palette.astype(np.uint8).tobytes())
    return drawn


def _packed(channels: np.ndarray) -> np.ndarray:
    """Packs three bytes into one integer."""
    red, green, blue = np.moveaxis(channels.astype(np.int32), -1, 0)
    return red << 16 | green << 8 | blue


def _channels(packed: np.ndarray) -> np.ndarray:
    return np.stack([packed >> 16, packed >> 8 & 255, packed & 255], axis=-1)


def _encoded(image: Image.Image, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, **options)
    return buffer.getvalue()


def _mp4(draft: Path, frames: Sequence[Sequence[Image.Image]], fps: Real) -> None:
    try:
        import imageio.v2 as imageio
        import imageio_ffmpeg  # noqa: F401  imageio would fail late and obscurely without it
    except ImportError as error:
        raise UsageError("MP4 needs a video encoder: pip install counterpoint[mp4], or write a .gif.") from error
    with warnings.catch_warnings():
        # jax warns about forks, but the encoder is a separate program.
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
        options = {"format": "FFMPEG", "codec": "libx264", "quality": 8, "macro_block_size": 2}
        with imageio.get_writer(draft, fps=fps, **options) as video:  # pyright: ignore
            for episode in frames:
                for image in [*episode, *[episode[-1]] * round(HOLD_SECONDS * fps)]:
                    video.append_data(np.asarray(image))  # pyright: ignore
