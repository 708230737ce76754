"""The page of a run, in a real browser: it computes what Python computes, and visitors can touch it."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import counterpoint
from browser import executable, opened
from counterpoint.algos.base import find
from counterpoint.algos.ensemble import sizes_of, with_ensemble
from counterpoint.cli.main import main
from counterpoint.core import prng
from counterpoint.core.actions import to_world
from counterpoint.core.errors import UsageError
from counterpoint.envs import WORLDS, make
from counterpoint.envs.own import as_world
from counterpoint.policies.policy import Policy
from counterpoint.runs import trust
from counterpoint.view.share import LARGEST, About, build, compiled, flattened
from tiny import TINY

pytestmark = pytest.mark.skipif(executable() is None, reason="there is no Chromium on this machine")

QUICK = ("simple_tag", "simple_reference", "tennis")
"""Worlds of the fast tests: bodies, words, continuous actions. The others are slow tests."""
TOLERANCE = 2e-4
"""Of observations and rewards over whole episodes, relative to 1 + their size; choices of discrete agents are equal."""


@pytest.fixture(scope="module")
def browser():
    with opened() as running:
        yield running


def untrained(world: Any, algorithm: str = "maddpg", members: int = 1, **settings: Any) -> Policy:
    """A team with random weights; `members` are the sub-policies of an ensemble."""
    entry, spec = find(algorithm), world.spec
    algo = entry.make(entry.settings(num_units=16, **settings), spec, np.ones((spec.num_agents,) * 2, bool), None)
    algo = with_ensemble(algo, spec, sizes_of(spec, members)) if members > 1 else algo
    return Policy(world, algo, algo.policy(algo.init(prng.key(1))))


def page_of(world: Any, folder: Path, name: str = "", team: Policy | None = None, **about: Any) -> tuple[Policy, Path]:
    """A page of an untrained team."""
    team = team or untrained(world)
    built = build(team, [], [], About(run=name or world.name, **about))
    path = folder / "team.html"
    path.write_text(built.html)
    return team, path


def python_episode(team: Policy, seed: int) -> list[tuple[Any, ...]]:
    """What happens at each step of an episode: observations, rewards, actions, and metrics by name."""
    world, algo = team.env.compiled, team.algo
    key_start, key_run = jax.random.split(prng.key(seed))
    key = jax.random.split(key_start, 1)[0]
    state, obs = jax.jit(world.reset)(key)
    carry = jax.tree.map(lambda leaf: leaf[None], algo.begin(jax.random.fold_in(key, 1)))

    @jax.jit
    def advance(state, obs, carry, time):
        legal = world.legal(state)
        action, carry = algo.greedy(team.parameters, carry, obs[None], None if legal is None else legal[None])
        _, key = jax.random.split(jax.random.fold_in(key_run, time))
        action = to_world(world.spec, action)[0]
        state, result = world.step(jax.random.split(key, 1)[0], state, action)
        return state, carry, result, action

    steps = []
    for time in range(world.max_steps):
        state, carry, result, action = advance(state, obs, carry, time)
        obs = result.obs
        measured = {name: float(metric.value) for name, metric in world.metrics(state).items()}
        steps.append((result.obs, result.reward, action, [measured[name] for name in sorted(measured)]))
        if np.all(result.terminated | result.truncated):
            break
    return steps


def page_episode(page: Any, seed: int) -> list[Any]:
    return json.loads(
        page.run(
            f"(() => {{ const s = counterpoint.stage; counterpoint.play(false); s.start({seed}); while (s.advance());"
            " const names = counterpoint.info.metrics;"
            " const named = (f) => names.toSorted().map((name) => f.metrics[names.indexOf(name)]);"
            " const facts = f => [f.obs, f.reward, f.action, named(f)].map(x => Array.from(x));"
            " return JSON.stringify(s.frames.slice(1).map(facts)); })()"
        )
    )


def agrees(world: Any, folder: Path, browser: Any, team: Policy | None = None, seeds: tuple[int, ...] = (0, 5)) -> None:
    team, path = page_of(world, folder, team=team)
    page = browser.page()
    page.open(path)
    page.wait("counterpoint.frames_drawn > 2")
    for seed in seeds:
        ours, theirs = page_episode(page, seed), python_episode(team, seed)
        assert len(ours) == len(theirs)
        for time, (mine, yours) in enumerate(zip(ours, theirs, strict=True)):
            for a, b, what in zip(mine, yours, ("observations", "rewards", "actions", "metrics"), strict=True):
                b = np.asarray(b).ravel()
                np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"{what} at step {time}")
    assert page.problems() == []


@pytest.mark.parametrize("name", QUICK)
def test_whole_episodes_agree_with_python(name, tmp_path, browser):
    agrees(make(name), tmp_path, browser)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in WORLDS if name not in QUICK])
def test_whole_episodes_of_the_other_worlds_agree(name, tmp_path, browser):
    agrees(make(name), tmp_path, browser)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("simple_tag", {"algorithm": "mappo"}),
        ("simple_spread", {"algorithm": "coma"}),
        ("tennis", {"algorithm": "masac"}),
        ("switch2", {"algorithm": "mappo", "recurrent": True}),
        ("simple_tag", {"algorithm": "maddpg", "members": 3}),
    ],
    ids=["mappo", "coma", "masac", "recurrent", "ensemble"],
)
def test_whole_episodes_of_other_algorithms_agree(name, settings, tmp_path, browser):
    world = make(name)
    agrees(world, tmp_path, browser, untrained(world, **settings))


def test_a_world_of_the_users_own_agrees(tmp_path, browser, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    sys.modules.pop("own_world", None)
    import own_world

    agrees(as_world(own_world.Gather(n=3), max_steps=12), tmp_path, browser)


# --- What visitors do.


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two short runs of the same world."""
    folder = tmp_path_factory.mktemp("runs")
    settings = TINY | {"save_dir": str(folder), "scenario": "simple_tag", "num_episodes": 48}
    return [counterpoint.train(exp_name=name, seed=k, **settings) for k, name in enumerate(("first", "second"))]


@pytest.fixture(scope="module")
def shared(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "team.html"
    return counterpoint.share(runs[0], path, others=[runs[1]])


@pytest.fixture
def page(shared, browser):
    page = browser.page()
    page.open(shared.path)
    page.wait("counterpoint.frames_drawn > 2")
    return page


def test_a_page_is_small_and_complete(shared, runs):
    text = shared.path.read_text()
    assert shared.size == len(text.encode()) < LARGEST
    assert shared.moments > 2
    assert shared.note == ""
    assert not re.search(r"(src|href)\s*=", re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL))
    assert "default-src 'none'" in text
    assert "unsafe" not in text
    assert str(runs[0].path.parent) not in text  # where it was trained is nobody's business


def test_play_pause_step_and_scrub(page):
    page.wait("counterpoint.stage.cursor > 1")
    page.click("#play")
    assert page.run("counterpoint.playing") is False
    at = page.run("counterpoint.stage.cursor")
    page.click("#step")
    assert page.run("counterpoint.stage.cursor") == at + 1
    page.key(",")
    assert page.run("counterpoint.stage.cursor") == at
    before = page.run("Array.from(counterpoint.stage.frame.state[0])")
    page.click("#scrub", left=True)
    page.wait("counterpoint.stage.cursor === 0")
    assert page.run("Array.from(counterpoint.stage.frame.state[0])") != before
    page.run("document.activeElement.blur()")
    page.key(" ")
    page.wait(f"counterpoint.stage.cursor > {at}")
    page.key("r")
    seed = page.run("counterpoint.stage.seed")
    page.key("n")
    page.wait(f"counterpoint.stage.seed === {seed} + 1")
    assert page.problems() == []


def test_bodies_can_be_dragged_while_it_plays(page):
    page.run("document.getElementById('stage').scrollIntoView()")
    for shape, leaf in (("s[6] === 'agent_0'", 0), ("s[5] === 'obstacle'", 3)):
        page.run("counterpoint.reset(3)")
        x, y, scale = page.run(
            "(() => { const c = counterpoint; c.play(false); c.paint();"
            " const b = document.getElementById('stage').getBoundingClientRect();"
            f" const s = c.stage.picture().shapes.find(s => s[0] === 'c' && {shape}); const p = c.painter.at(s[2], s[3]);"
            " return [b.left + p[0], b.top + p[1], c.painter.scale]; })()"
        )
        page.run("counterpoint.play(true)" if leaf == 3 else "0")
        before = page.run(f"Array.from(counterpoint.stage.frame.state[{leaf}])")
        page.mouse("mousePressed", x, y)
        page.mouse("mouseMoved", x - 20, y + 10, held=True)
        page.mouse("mouseMoved", x - 40, y + 20, held=True)
        after = page.run(f"Array.from(counterpoint.stage.frame.state[{leaf}])")
        page.mouse("mouseReleased", x - 40, y + 20)
        moved = np.array(after) - np.array(before)
        assert np.count_nonzero(moved) == 2
        np.testing.assert_allclose(moved[moved != 0], [-40 / scale, -20 / scale], rtol=1e-3)
    assert page.problems() == []


def test_a_visitor_takes_over_an_agent(page):
    page.run("counterpoint.faster(30)")
    page.click("#agents tr:nth-child(4) button")
    assert page.run("counterpoint.stage.held.agent") == 3
    page.key("ArrowRight", up=False)
    page.wait("counterpoint.stage.cursor > 4 && counterpoint.stage.frame.action[3 * 5 + 2] === 1")
    page.key("ArrowRight", down=False)
    page.key("ArrowUp", up=False)
    page.wait("counterpoint.stage.frame.action && counterpoint.stage.frame.action[3 * 5 + 4] === 1")
    page.key("ArrowUp", down=False)
    page.wait("counterpoint.stage.frame.action && counterpoint.stage.frame.action[3 * 5] === 1")
    page.run("counterpoint.choice = 2; globalThis.dispatchEvent(new Event('blur'))")
    assert page.run("counterpoint.choice === undefined"), "a key may be released in another window"
    page.run("counterpoint.choice = 2")
    page.key("Escape")
    assert page.run("counterpoint.stage.held") is None
    assert page.run("counterpoint.choice === undefined")
    assert page.problems() == []


BODY = (
    "(() => { const c = counterpoint; c.play(false); c.reset(3); c.paint(); const e = document.getElementById('stage');"
    " e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
    " const s = c.stage.picture().shapes.find((s) => s[0] === 'c' && s[6] === 'agent_0'); const p = c.painter.at(s[2], s[3]);"
    " return [b.left + p[0], b.top + p[1]]; })()"
)
"""Where an agent is drawn."""


def test_a_phone_is_wide_enough_and_answers_to_fingers(shared, browser):
    page = browser.page(width=390, height=800, touch=True)
    page.open(shared.path)
    page.wait("counterpoint.frames_drawn > 2")
    page.run("counterpoint.faster(30)")
    page.tap("#agents tr:nth-child(4) button")
    page.wait("counterpoint.stage.held?.agent === 3")
    assert page.run("document.getElementById('pad').hidden") is False
    page.tap("details summary")
    page.wait("document.querySelector('details').open")
    assert page.run("document.documentElement.scrollWidth") <= 390
    for name, choice in (("right", 2), ("up", 4)):
        page.touch("touchStart", page.place(f"#pad button[aria-label={name}]"))
        page.wait(f"counterpoint.stage.frame.action?.[3 * 5 + {choice}] === 1")
        page.touch("touchEnd")
        page.wait("counterpoint.stage.frame.action?.[3 * 5] === 1")
    page.tap("#agents tr:nth-child(4) button")
    page.wait("counterpoint.stage.held === null && document.getElementById('pad').hidden")
    x, y = page.run(BODY)
    before = page.run("Array.from(counterpoint.stage.frame.state[0])")
    page.touch("touchStart", (x, y))
    page.touch("touchMove", (x - 20, y + 10))
    page.touch("touchMove", (x - 40, y + 20))
    page.touch("touchEnd")
    moved = np.array(page.run("Array.from(counterpoint.stage.frame.state[0])")) - np.array(before)
    np.testing.assert_allclose(moved[moved != 0] * page.run("counterpoint.painter.scale"), [-40, -20], rtol=1e-3)
    assert page.problems() == []


def test_arrow_buttons_digits_and_speed(page):
    page.run("document.getElementById('speed').focus()")
    for key, speed, text in (("Home", 1, "1 steps/s"), ("End", 128, "128 steps/s")):
        page.key(key)
        assert page.run("[counterpoint.speed, document.getElementById('speed-text').textContent]") == [speed, text]
    page.run("document.activeElement.blur(); counterpoint.faster(30)")
    page.click("#agents tr:nth-child(4) button")
    x, y = page.place("#pad button[aria-label=left]")
    page.mouse("mousePressed", x, y)
    page.wait("counterpoint.stage.frame.action?.[3 * 5 + 1] === 1")
    page.mouse("mouseReleased", x, y)
    page.wait("counterpoint.stage.frame.action?.[3 * 5] === 1")
    page.key("3", up=False)
    page.wait("counterpoint.stage.frame.action?.[3 * 5 + 3] === 1")
    page.key("3", down=False)
    page.wait("counterpoint.stage.frame.action?.[3 * 5] === 1")
    assert page.problems() == []


def test_rewards_are_beside_the_agents_and_the_run_is_below(page):
    page.run("counterpoint.play(false); counterpoint.reset(1); for (let k = 0; k < 9; k++) counterpoint.step(1)")
    cells = "(name) => [...document.querySelectorAll(`#agents .${name}`)]"
    for name, field in (("reward", "reward"), ("return", "returns")):
        shown = page.run(f"({cells})('{name}').map((cell) => Number(cell.textContent))")
        np.testing.assert_allclose(shown, page.run(f"Array.from(counterpoint.stage.frame.{field})"), rtol=0.05, atol=6e-4)
    assert any(page.run("Array.from(counterpoint.stage.frame.returns)"))
    losses = page.run(f"({cells})('reward').map((cell) => cell.classList.contains('loss'))")
    assert losses == page.run("Array.from(counterpoint.stage.frame.reward, (reward) => reward < 0)")
    titles = page.run("[...document.querySelectorAll('.run .curves figure')].map((figure) => figure.textContent)")
    for team in ("adversary", "good"):
        assert any(f"return per episode, team {team}" in title for title in titles)
    assert page.run("document.querySelectorAll('.run .curves svg path, .run .curves svg polyline').length") >= 2
    text = page.run("document.querySelector('.run').textContent")
    assert "Last evaluation" in text
    page.click("details summary")
    page.wait("document.querySelector('details').open")
    settings = page.run(
        "[...document.querySelectorAll('details tbody tr')].map((row) => [...row.children].map((c) => c.textContent))"
    )
    assert ["learning.num_units", "16"] in settings
    assert page.problems() == []


def test_words_are_spoken_and_shown(tmp_path, browser):
    _, path = page_of(make("simple_reference"), tmp_path)
    page = browser.page()
    page.open(path)
    page.wait("counterpoint.frames_drawn > 2")
    said = "[...document.querySelectorAll('#agents .said')].map((cell) => cell.textContent)"
    page.wait(f"({said}).every((text) => /, says [A-J]$/.test(text))")
    assert page.run("counterpoint.stage.picture().shapes.filter((shape) => shape[0] === 's').length") == 2
    page.run("counterpoint.faster(30)")
    page.click("#agents tr:nth-child(1) button")
    assert page.run("[...document.querySelectorAll('#pad .words button')].map((b) => b.textContent).join('')") == "ABCDEFGHIJ"
    page.click("#pad .words button:nth-child(3)")
    page.wait(f"counterpoint.stage.frame.action?.[5 + 2] === 1 && {said}[0] === '0, says C'")
    page.key("7")
    page.wait(f"counterpoint.stage.frame.action?.[5 + 7] === 1 && {said}[0] === '0, says H'")
    assert page.run("document.querySelector('#pad .words [aria-pressed=true]').textContent") == "H"
    page.wait("counterpoint.stage.cursor > 3")  # the picture shows what was said a step before
    words = page.run("Array.from(counterpoint.stage.picture().shapes.find((shape) => shape[0] === 's')[5])")
    assert max(range(10), key=words.__getitem__) == 7
    assert page.problems() == []


def test_a_team_follows_another_run(page):
    page.run("counterpoint.play(false); counterpoint.reset(1)")
    assert page.run("document.querySelectorAll('#swaps select').length") == 2
    first = page.run("Array.from(counterpoint.stage.decide(counterpoint.stage.frame).action)")
    page.run("document.querySelector('#swaps select[data-team=adversary]').focus()")
    page.key("ArrowDown")
    chosen = page.run("[counterpoint.stage.chosen.adversary, counterpoint.stage.chosen.good, counterpoint.moment()]")
    assert chosen[0] != chosen[1] == chosen[2]
    assert page.run("counterpoint.info.policies[counterpoint.stage.chosen.adversary].label") == "second"
    second = page.run("Array.from(counterpoint.stage.decide(counterpoint.stage.frame).action)")
    assert first[15:] == second[15:]
    assert page.problems() == []


def test_the_slider_goes_back_to_the_untrained_team(page):
    page.run("document.getElementById('moment').focus()")
    page.key("Home")
    assert page.run("counterpoint.stage.chosen.good") == 0
    assert page.run("document.getElementById('moment-text').textContent") == "untrained"
    page.key("End")
    assert page.run("counterpoint.stage.chosen.good") == page.run("counterpoint.moment()")


def test_an_earlier_policy_plays_first_and_the_history_stays(runs, shared, tmp_path, browser):
    written = counterpoint.share(runs[0], tmp_path / "team.html", at=16)
    assert written.moments == shared.moments
    page = browser.page()
    page.open(written.path)
    page.wait("counterpoint.frames_drawn > 2")
    labels = page.run("counterpoint.info.moments.map((k) => counterpoint.info.policies[k].label)")
    assert labels == ["untrained", "after 16 episodes", "after 32 episodes", "after 48 episodes"]
    shown = "[document.getElementById('moment-text').textContent, document.getElementById('moment').value]"
    assert page.run(shown) == ["after 16 episodes", "1"]
    assert set(page.run("Object.values(counterpoint.stage.chosen)")) == {1}
    assert "after 16 episodes" in page.run("document.querySelector('.about').textContent")
    page.run("document.getElementById('moment').focus()")
    page.key("End")
    assert page.run(shown) == ["after 48 episodes", "3"]
    assert set(page.run("Object.values(counterpoint.stage.chosen)")) == {3}
    assert page.problems() == []


HOSTILE = '</script><script>document.title="owned"</script><img src=x onerror="document.title=1">\x1b[31m"\u202e'


def test_hostile_names_run_nothing(tmp_path, browser):
    rows = [{"episode": k, "seed": 0, f"eval/{HOSTILE}": k, f"team/{HOSTILE}": k} for k in range(3)]
    _, path = page_of(make("switch2"), tmp_path, HOSTILE, algorithm=HOSTILE, rows=rows, settings={HOSTILE: {"x": HOSTILE}})
    page = browser.page()
    page.open(path)
    page.wait("counterpoint.frames_drawn > 2")
    assert page.problems() == []
    assert page.run("document.images.length") == 0
    assert page.run("document.scripts.length") == 2
    assert "owned" in page.run("document.title")  # as text, in full
    assert page.run("document.title") != "owned"
    assert "\x1b" not in path.read_text()
    assert "\u202e" not in path.read_text()


def test_no_folder_of_this_machine_is_shown():
    settings = {"save_dir": "/home/me/runs", "freeze": ["good=/home/me/runs/old", "adversary=~/mine"], "exp_name": "~test"}
    shown = {"save_dir": "runs", "freeze": ["good=old", "adversary=mine"], "exp_name": "~test"}
    assert dict(flattened(settings)) == shown


def test_refusals_are_one_sentence(runs, tmp_path):
    with pytest.raises(UsageError, match=r"must end in \.html"):
        counterpoint.share(runs[0], tmp_path / "team.pdf")
    external = object.__new__(Policy)
    external.env = SimpleNamespace(compiled=None, name="pong")
    with pytest.raises(UsageError, match="pong is stepped by Python"):
        compiled(external)
    other = counterpoint.train(scenario="simple", exp_name="other", num_episodes=16, save_dir=str(tmp_path), **TINY)
    with pytest.raises(UsageError, match="takes runs of the same world"):
        counterpoint.share(runs[0], tmp_path / "team.html", others=[other])


def test_the_command_writes_beside_the_run(runs, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["counterpoint", "share", str(runs[1].path), "--at", "16"])
    main()
    written = runs[1].path / "team.html"
    assert written.stat().st_size < LARGEST
    assert f"→ {written}" in capsys.readouterr().out
    assert "after 16 episodes" in written.read_text()


def test_a_page_beyond_a_megabyte_says_what_makes_it_large(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("counterpoint.view.share.LARGEST", 100_000)
    words = ["counterpoint", "share", str(runs[0].path), "--out", str(tmp_path / "team.html"), "--with", str(runs[1].path)]
    monkeypatch.setattr(sys, "argv", words)
    main()
    printed = capsys.readouterr().out.splitlines()
    (warning,) = [line for line in printed if "more than" in line]
    for part in ("more than 100 kB", "the team's policy takes", "those of --with", "leave out --with", "no room for earlier"):
        assert part in warning


def test_a_run_that_names_code_is_shared_only_if_it_is_trusted(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(trust, "named_code", lambda config: {"env": "evil.py:World"})
    monkeypatch.setattr(trust, "is_signed", lambda config: False)
    with pytest.raises(UsageError, match=r"would execute code .* add --trust"):
        counterpoint.share(runs[0], tmp_path / "team.html")
    assert counterpoint.share(runs[0], tmp_path / "team.html", trust=True).size > 0
