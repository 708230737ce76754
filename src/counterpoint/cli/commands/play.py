"""`counterpoint play`."""

import os
import time
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from counterpoint.cli.registry import command
from counterpoint.core.errors import UsageError

FPS = 12
"""Pictures per second in a window, as in a film."""


@command("Trained runs")
def play(
    what: Annotated[Positional[str], arg(metavar="RUN|ENV")],
    policy: Literal["trained", "random"] = "trained",
    episodes: int = 3,
    out: str = "",
    seed: int = 0,
    explore: bool = False,
    at: str = "last",
    history: bool = False,
    seed_index: int = 0,
    display: bool = False,
    env: str = "",
    trust: bool = False,
    args: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE …", help_behavior_hint="(default: none)")] = (),
    member: Annotated[int | None, arg(metavar="INDEX", help_behavior_hint="(default: drawn for each episode)")] = None,
) -> None:
    """Record a film of a trained run, or of an environment with random actions.

    Args:
        what: The run's folder, its name in ./runs, or the name of an environment; a run comes first if both have that name.
        policy: Policy that selects the actions (an environment given by name always uses the random one).
        episodes: Number of episodes to record.
        out: File to write, ending in .gif, .png, .svg or .mp4 (empty: play.gif in the run's folder, or the environment's name
            with .gif in the current folder).
        seed: Random seed of the episodes.
        explore: Act with the exploration noise of training instead of greedily.
        at: Policy to play: last, best (by evaluation), or a number of episodes (the nearest policy that was kept).
        history: Film the team as it learns, with one episode of every policy that was kept.
        seed_index: Index of the seed whose policy plays, if the run has several seeds.
        display: Show the episodes in a window if there is a display, otherwise write the film.
        env: New place of the run's own environment, if it has moved (empty: where it was in training).
        trust: Execute the code that the run names even though you did not make the run on this machine.
        args: Arguments of an environment given by name, in the form name=value.
        member: Sub-policy of an ensemble, counted from 0.
    """
    from counterpoint.config import EnvSettings
    from counterpoint.envs import WORLDS
    from counterpoint.policies.policy import film_history, load, load_history, random_team
    from counterpoint.runs import open_run
    from counterpoint.runs.folder import find

    if episodes < 1:
        raise UsageError(f"--episodes must be at least 1, not {episodes}.")
    if what in WORLDS and not (find(what) / "config.json").exists():
        for_runs = {"--history": history, "--at": at != "last", "--member": member is not None, "--seed-index": seed_index}
        if given := [name for name, chosen in for_runs.items() if chosen]:
            are = "is for runs" if len(given) == 1 else "are for runs"
            raise UsageError(f"{' and '.join(given)} {are}, and {what} is an environment: name a run.")
        team, explore, beside = random_team(EnvSettings(scenario=what, scenario_args=args).build()), True, f"{what}.gif"
    elif args:
        raise UsageError("--args are for an environment given by name, and a run has its own: leave them out.")
    else:
        run = open_run(what)
        if history:
            if at != "last" or policy == "random" or display:
                raise UsageError("--history films every kept policy: leave out --at, --policy and --display.")
            teams, target = load_history(run, seed_index, env, trust, member), out or str(run.path / "history.gif")
            if not film_history(teams, target, seed, explore):
                raise _cannot_draw(teams[0])
            moments = ", ".join(str(team.about.get("episodes")) for team in teams)
            print(f"{len(teams)} policies of {run.name}, after {moments} episodes → {target}")
            return
        team, beside = load(run, seed_index, at, env, trust, member), str(run.path / "play.gif")
        if at != "last":
            print(f"the policy after {team.about.get('episodes')} episodes")
        if policy == "random":
            team, explore = random_team(team.env), True
    if display and _shown(team, episodes, seed, explore):
        return
    if not team.save_film(out or beside, episodes, seed, explore):
        raise _cannot_draw(team)
    print(f"{episodes} episode{'s' * (episodes > 1)} of {team.env.name} → {out or beside}")


def _cannot_draw(team: Any) -> UsageError:
    how = "its class needs a method draw(state)" if team.env.compiled else "its factory must accept render_mode='rgb_array'"
    return UsageError(f"{team.env.name} cannot be rendered: {how}.")


def _shown(team: Any, episodes: int, seed: int, explore: bool) -> bool:
    """Shows episodes in a window; returns False, and says so, if there is no display."""
    from counterpoint.viz.window import Window

    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        print("there is no display here: writing a film instead")
        return False
    try:
        window = Window(team.env.name)
    except UsageError as error:
        print(f"{str(error).partition(':')[0]}: writing a film instead")
        return False
    try:
        for frames in team.frames(episodes, seed, explore):
            for frame in frames:
                window.show(frame)
                time.sleep(1 / FPS)
    finally:
        window.close()
    return True
