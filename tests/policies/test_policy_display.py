"""A policy in a notebook."""

import base64

import counterpoint
from tiny import trained_run


def test_a_policy_shows_its_agents_curve_and_film() -> None:
    run = trained_run()
    team = counterpoint.load(run)
    html = team._repr_html_()
    assert "trained for 48 episodes" in html
    assert "agent_0" in html
    assert "1 of 5" in html
    for path in (run.curve_path, run.gif_path):
        assert base64.b64encode(path.read_bytes()).decode() in html
    assert repr(team) == "Policy(simple: agent_0, trained for 48 episodes)"


def test_an_earlier_policy_shows_a_film_of_its_own() -> None:
    run = trained_run()
    html = counterpoint.load(run, at=16)._repr_html_()
    assert "film of one episode" in html
    assert "data:image/gif;base64," in html
    assert base64.b64encode(run.gif_path.read_bytes()).decode() not in html
