"""Pictures become files in the right colours, sizes and order; refusals name the fix."""

import os
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from PIL import Image

from counterpoint.core import prng
from counterpoint.core.errors import UsageError
from counterpoint.core.picture import Circle, Line, Picture, Polygon, Speech
from counterpoint.envs import make
from counterpoint.viz.drawing import Text
from counterpoint.viz.render import BEYOND, GROUND, ROLES, colour_of, grow, layout, rgb, save, sketch, svg
from counterpoint.viz.window import Window

HOME = (-1.0, -1.0, 1.0, 1.0)
SVG = "{http://www.w3.org/2000/svg}"


def picture(*shapes, caption="", window=HOME):
    return Picture(window, shapes, caption)


def colour_at(image, pictures, x, y):
    """The colour at a position of the picture, located by its layout."""
    column, row = layout(pictures, 240).at(x, y)
    return tuple(image[int(row), int(column)].tolist())


def moving(steps, start=0.0):
    """An agent that walks to the right, as an episode."""
    return [picture(Circle(start + 0.05 * t, 0.0, 0.1, "agent", trail="a"), caption=f"walk  step {t}") for t in range(steps)]


def texts(drawn):
    return [mark.string for mark in drawn.marks if isinstance(mark, Text)]


def test_a_body_has_its_roles_colour_at_its_place_and_y_points_up():
    shown = picture(Circle(0.5, 0.6, 0.15, "adversary"), Circle(-0.5, -0.6, 0.15, "agent"))
    image = rgb(shown, 240)
    assert image.dtype == np.uint8
    assert colour_at(image, [shown], 0.5, 0.6) == ROLES["adversary"]
    assert colour_at(image, [shown], -0.5, -0.6) == ROLES["agent"]
    red_row, blue_row = (np.argwhere((image[:240] == ROLES[role]).all(axis=2))[:, 0].mean() for role in ("adversary", "agent"))
    assert red_row == pytest.approx(0.2 * 240, abs=2)
    assert blue_row == pytest.approx(0.8 * 240, abs=2)


@pytest.mark.parametrize(
    ("window", "shape"), [(HOME, (240, 240)), ((0.0, 0.0, 4.0, 2.0), (120, 240)), ((0.0, 0.0, 1.0, 2.0), (240, 120))]
)
def test_size_is_the_longer_side_of_the_picture(window, shape):
    assert rgb(picture(window=window), 240).shape == (*shape, 3)


def test_caption_and_legend_are_outside_the_picture():
    bare, full = picture(), picture(Circle(0, 0, 0.1, "agent"), caption="a world  step 3")
    page = layout([full], 240)
    assert (page.top > 0, page.legend) == (True, (("agent",),))
    assert page.bottom - page.top == 240 == layout([bare], 240).height
    assert texts(sketch(full, page))[:2] == ["a world", "step 3"]
    strip = rgb(full, 240)[: page.top]
    assert (strip[0] == 255).all()
    assert strip.min() < 120


def test_the_view_grows_to_show_all_bodies_and_keeps_its_proportions():
    away = picture(Circle(2.0, 0.0, 0.1, "agent"), window=(-1.0, -0.5, 1.0, 0.5))
    x0, y0, x1, y1 = grow([away])
    assert x0 == -1.0
    assert x1 >= 2.1
    assert (x1 - x0) / (y1 - y0) == pytest.approx(2.0)
    image = rgb(away, 240)
    assert colour_at(image, [away], 2.0, 0.0) == ROLES["agent"]
    assert colour_at(image, [away], 0.0, 0.0) == GROUND
    assert colour_at(image, [away], 1.5, 0.6) == BEYOND


def test_a_distant_body_is_shown_at_the_edge_and_nan_nowhere():
    shown = picture(Circle(1e9, 0.0, 0.3, "agent"), Circle(float("nan"), 0.0, 0.3, "adversary"))
    x0, _, x1, _ = grow([shown])
    assert x1 - x0 <= 4 * 2.0
    image = rgb(shown, 240)
    assert colour_at(image, [shown], x1 - 0.1, 0.0) == ROLES["agent"]
    world = image[: layout([shown], 240).bottom]
    assert not (world == ROLES["adversary"]).all(axis=2).any()
    assert "nan" not in svg(shown, 240)


def test_one_page_serves_a_whole_episode():
    episode = [*moving(3), *moving(3, start=1.5)]
    page = layout(episode, 240)
    assert {(sketch(p, page).width, sketch(p, page).height) for p in episode} == {(page.width, page.height)}
    assert page.window == grow(episode)


def test_a_trail_follows_its_body_and_pales_with_age():
    episode = moving(12, start=-0.5)
    page = [*episode]
    image = rgb(episode[-1], 240, past=episode[:-1])
    blue = np.array(ROLES["agent"])
    fresh, old = (np.abs(np.array(colour_at(image, page, x, 0.0)) - blue).sum() for x in (-0.1, -0.45))
    ground = np.abs(np.array(GROUND) - blue).sum()
    assert fresh < old < ground
    assert colour_at(rgb(episode[-1], 240), page, -0.1, 0.0) == GROUND


def test_each_episode_starts_without_trails(tmp_path):
    first, second = moving(8, start=-0.8), moving(8, start=0.3)
    save([first, second], tmp_path / "two.gif", size=240)
    with Image.open(tmp_path / "two.gif") as film:
        film.seek(8)
        start = np.asarray(film.convert("RGB"))
    assert colour_at(start, first + second, -0.6, 0.0) == GROUND
    assert colour_at(start, first + second, 0.3, 0.0) == ROLES["agent"]


def test_headings_draw_a_nose():
    ahead = picture(Circle(0, 0, 0.2, "agent", heading=np.pi / 2))
    image = rgb(ahead, 240)
    assert colour_at(image, [ahead], 0.0, 0.23) != GROUND
    assert colour_at(image, [ahead], 0.0, -0.23) == GROUND == colour_at(image, [ahead], 0.23, 0.0)


def test_forests_are_translucent_and_goals_have_their_owners_colour():
    shown = picture(
        Circle(-0.5, 0, 0.2, "agent"), Circle(-0.5, 0, 0.3, "forest"), Circle(0.5, 0, 0.2, "goal", owner="adversary")
    )
    image = rgb(shown, 240)
    through = colour_at(image, [shown], -0.5, 0.0)
    assert through not in (ROLES["agent"], ROLES["forest"])
    assert all(min(a, f) <= t <= max(a, f) for a, f, t in zip(ROLES["agent"], ROLES["forest"], through, strict=True))
    assert colour_at(image, [shown], 0.5, 0.0) == ROLES["adversary"]


def test_speech_shows_the_strongest_word_and_silence_nothing():
    def said(*words):
        shown = picture(Circle(0, 0, 0.1, "speaker"), Speech(0, 0, "speaker", words))
        return texts(sketch(shown, layout([shown], 240)))

    assert said(0.1, 0.0, 0.8) == ["C", "speaker"]
    assert said(*[0.0] * 26, 1.0) == ["26", "speaker"]
    assert said(0.0, 0.0, 0.0) == ["speaker"]
    assert said() == ["speaker"]


def test_a_weak_word_is_fainter():
    def ink(strength):
        shown = picture(Speech(0, 0, "speaker", (strength, 0.0)))
        return next(m.colour for m in sketch(shown, layout([shown], 240)).marks if isinstance(m, Text) and m.string == "A")

    assert sum(ink(0.2)) > sum(ink(0.9))


@pytest.mark.parametrize("x", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("y", [-1.0, 0.0, 1.0])
def test_bubbles_stay_on_the_page(x, y):
    shown = picture(Speech(x, y, "speaker", (0.0, 1.0)), caption="talk")
    page = layout([shown], 240)
    letter = next(m for m in sketch(shown, page).marks if isinstance(m, Text) and m.string == "B")
    assert 5 < letter.x < page.width - 5
    assert page.top + 5 < letter.y < page.bottom - 5


def test_labels_are_numbers_where_the_legend_names_the_role():
    shown = picture(
        Circle(0, 0, 0.2, "agent", "agent_3"), Circle(0.5, 0, 0.2, "agent_1", "agent_1"), Circle(0, 0.5, 0.01, "x", "Z")
    )
    assert texts(sketch(shown, layout([shown], 480)))[:3] == ["3", "1", "Z"]


def test_unknown_roles_have_a_colour_that_never_changes():
    program = "from counterpoint.viz.render import colour_of; import sys; print(colour_of('unicorn'), 'jax' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": "7"}
    )
    assert done.stdout.strip() == f"{colour_of('unicorn')} False"
    assert len({colour_of(f"role {i}") for i in range(20)}) > 3


def test_svg_is_xml_with_a_circle_per_body():
    shown = picture(
        Polygon(((0, 0), (0.5, 0), (0.5, 0.5)), "cell"),
        Line(((-1, -1), (1, 1)), "wall"),
        Circle(0, 0, 0.1, "agent", "a<b"),
        Circle(0.5, 0.5, 0.1, "forest"),
        caption="x & y",
    )
    root = ElementTree.fromstring(svg(shown, 240))
    world = root.find(f".//{SVG}g[@class='world']")
    assert world is not None
    assert [len(world.findall(SVG + tag)) for tag in ("circle", "polygon", "polyline")] == [2, 1, 1]
    assert {"a<b", "x & y"} <= {text.text for text in root.iter(SVG + "text")}
    page = layout([shown], 240)
    disc = world.find(SVG + "circle")
    assert disc is not None
    assert [float(disc.attrib[name]) for name in ("cx", "cy", "r")] == pytest.approx([*page.at(0, 0), 12], abs=0.01)
    assert (root.attrib["width"], root.attrib["height"]) == (str(page.width), str(page.height))


def test_png_of_one_picture_is_that_picture(tmp_path):
    shown = picture(Circle(0, 0, 0.2, "agent"), caption="one")
    save([[shown]], tmp_path / "one.PNG", size=240)
    with Image.open(tmp_path / "one.PNG") as image:
        assert np.array_equal(np.asarray(image), rgb(shown, 240))


@pytest.mark.parametrize(
    ("lengths", "moments", "columns", "rows"), [((9, 9), 6, 6, 2), ((3,), 6, 3, 1), ((1,) * 7, 6, 3, 3), ((9, 9), 1, 2, 1)]
)
def test_several_pictures_make_a_sheet(tmp_path, lengths, moments, columns, rows):
    save([moving(n) for n in lengths], tmp_path / "sheet.png", size=120, moments=moments)
    page, gap = layout(moving(9), 120), 4
    with Image.open(tmp_path / "sheet.png") as image:
        assert image.size == (gap + columns * (page.width + gap), gap + rows * (page.height + gap))
    save([moving(n) for n in lengths], tmp_path / "sheet.svg", size=120, moments=moments)
    cells = ElementTree.parse(tmp_path / "sheet.svg").getroot().findall(SVG + "svg")
    assert len(cells) == sum(min(n, moments) for n in lengths)
    captions = [text.text for text in cells[-1].iter(SVG + "text")]
    assert f"step {lengths[-1] - 1}" in captions  # the last moment is always there


def test_a_gif_loops_and_pauses_at_the_end_of_each_episode(tmp_path):
    save([moving(4), moving(3)], tmp_path / "walk.gif", fps=12, size=120)
    with Image.open(tmp_path / "walk.gif") as film:
        assert film.n_frames == 7
        assert film.info["loop"] == 0
        durations = []
        for i in range(7):
            film.seek(i)
            durations.append(film.info["duration"])
    assert durations == [80, 80, 80, 880, 80, 80, 880]


def test_a_gif_of_a_real_environment_is_small_and_has_true_colours(tmp_path):
    world = make("simple_tag")
    reset, step = jax.jit(world.reset), jax.jit(world.step)
    rng = np.random.default_rng(0)
    episodes = []
    for seed in range(3):
        state, _ = reset(prng.key(seed))
        episodes.append([world.draw(state)])
        for t in range(24):
            state, _ = step(prng.key(t), state, np.eye(5, dtype=np.float32)[rng.integers(5, size=4)])
            episodes[-1].append(world.draw(state))
    save(episodes, tmp_path / "tag.gif")
    assert (tmp_path / "tag.gif").stat().st_size < 600_000
    pictures = [p for episode in episodes for p in episode]
    with Image.open(tmp_path / "tag.gif") as film:
        assert film.n_frames == 75
        first = np.asarray(film.convert("RGB")).astype(int)
    page = layout(pictures, 480)
    smooth = np.asarray(rgb(pictures[0], 480, window=page.window)).astype(int)
    assert first.shape == smooth.shape
    assert np.abs(first - smooth).max() < 60
    assert np.abs(first - smooth).mean() < 0.5


@pytest.mark.parametrize("name", ["simple_world_comm", "simple_crypto"])
def test_every_body_of_a_particle_world_is_drawn(name):
    world = make(name)
    state, _ = jax.jit(world.reset)(prng.key(1))
    state = state._replace(comm=state.comm.at[:, 1].set(world.bodies.talks * 1.0))
    root = ElementTree.fromstring(svg(world.draw(state)))
    bodies = root.find(f".//{SVG}g[@class='world']")
    assert bodies is not None
    assert len(bodies.findall(SVG + "circle")) == world.num_agents + world.num_landmarks
    spoken = root.findall(f".//{SVG}g[@class='speech']/{SVG}text")
    assert [letter.text for letter in spoken] == ["B"] * int(world.bodies.talks.sum())


def test_an_mp4_has_every_frame_and_the_pauses(tmp_path):
    imageio = pytest.importorskip("imageio.v2")
    pytest.importorskip("imageio_ffmpeg")
    save([moving(4), moving(3)], tmp_path / "walk.mp4", fps=10, size=120)
    page = layout([*moving(4), *moving(3)], 120)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # of the reader; writing must be silent by itself
        with imageio.get_reader(tmp_path / "walk.mp4") as film:
            assert film.count_frames() == 4 + 8 + 3 + 8
            assert film.get_meta_data()["size"] == (page.width, page.height)


def test_without_the_encoder_mp4_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio", None)
    monkeypatch.setitem(sys.modules, "imageio.v2", None)
    with pytest.raises(UsageError, match=r"pip install counterpoint\[mp4\]"):
        save([moving(2)], tmp_path / "walk.mp4")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["png", "svg", "gif"])
def test_writing_leaves_the_file_and_nothing_else(tmp_path, suffix):
    save([moving(2)], tmp_path / f"walk.{suffix}", size=60)
    assert [path.name for path in tmp_path.iterdir()] == [f"walk.{suffix}"]


def test_a_failed_write_keeps_the_old_file_and_leaves_no_draft(tmp_path, monkeypatch):
    target = tmp_path / "walk.png"
    target.write_bytes(b"old")

    def fail(source, destination):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("counterpoint.viz.render.os.replace", fail)
    with pytest.raises(UsageError, match="No space left"):
        save([moving(2)], target, size=60)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("walk.bmp", {}, r"\.png, \.svg, \.gif or \.mp4"),
        ("walk", {}, r"\.png, \.svg, \.gif or \.mp4"),
        ("missing/walk.png", {}, "not a folder"),
        ("file.txt/walk.png", {}, "not a folder"),
        ("walk.gif", {"fps": 0}, "fps must be above 0, not 0"),
        ("walk.gif", {"size": 3}, "size must be .* not 3"),
        ("walk.gif", {"size": 5000}, "size must be .* not 5000"),
        ("walk.png", {"moments": 0}, "moments must be at least 1, not 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_sentence(tmp_path, path, options, message):
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(UsageError, match=message):
        save([moving(2)], tmp_path / path, **options)


@pytest.mark.parametrize("episodes", [[], [[]]])
def test_nothing_to_draw_is_refused(tmp_path, episodes):
    with pytest.raises(UsageError, match="nothing to draw"):
        save(episodes, tmp_path / "walk.png")


def test_an_empty_window_is_refused():
    with pytest.raises(UsageError, match="window"):
        rgb(picture(window=(0.0, 0.0, 0.0, 1.0)))


def test_a_window_without_tkinter_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "tkinter", None)
    with pytest.raises(UsageError, match="tkinter"):
        Window()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is always a display")
def test_a_window_without_a_display_says_so(monkeypatch):
    pytest.importorskip("tkinter")
    monkeypatch.delenv("DISPLAY", raising=False)
    with pytest.raises(UsageError, match=r"no display.*rgb_array"):
        Window()


def test_a_window_shows_pictures_until_it_is_closed(monkeypatch):
    shown, calls = [], []
    root = SimpleNamespace(
        title=lambda _: None,
        protocol=lambda *_: None,
        update=lambda: calls.append("update"),
        destroy=lambda: calls.append("destroy"),
    )
    label = SimpleNamespace(pack=lambda: None, configure=lambda image: shown.append(image))
    fake = SimpleNamespace(Tk=lambda: root, Label=lambda *_, **__: label, PhotoImage=lambda data: data, TclError=RuntimeError)
    monkeypatch.setitem(sys.modules, "tkinter", fake)
    window = Window()
    window.show(np.full((2, 3, 3), 65, np.uint8))
    window.close()
    window.close()
    window.show(np.zeros((2, 3, 3), np.uint8))
    assert shown == [b"P6 3 2 255 " + b"A" * 18]
    assert calls == ["update", "destroy"]
