"""`counterpoint play`."""

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from counterpoint.cli.registry import command
from counterpoint.core.errors import UsageError


@command("Trained runs")
def play(
    what: Annotated[Positional[str], arg(metavar="RUN|ENV")],
    policy: Literal["trained", "random"] = "trained",
    episodes: int = 3,
    out: str = "",
    seed: int = 0,
    explore: bool = False,
    args: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE …", help_behavior_hint="(default: none)")] = (),
) -> None:
    """Record a film of a trained run, or of an environment with random actions.

    Args:
        what: The run's folder, or the name of an environment.
        policy: Policy that selects the actions (an environment given by name always uses the random one).
        episodes: Number of episodes to record.
        out: File to write, ending in .gif, .png, .svg or .mp4 (empty: play.gif in the run's folder, or the environment's name
            with .gif in the current folder).
        seed: Random seed of the episodes.
        explore: Act with the exploration noise of training instead of greedily.
        args: Arguments of an environment given by name, in the form name=value.
    """
    from counterpoint.config import EnvSettings
    from counterpoint.envs import WORLDS
    from counterpoint.policies.policy import load, random_team

    if episodes < 1:
        raise UsageError(f"--episodes must be at least 1, not {episodes}.")
    if what in WORLDS and not (Path(what) / "config.json").exists():
        team, explore, beside = random_team(EnvSettings(scenario=what, scenario_args=args).build()), True, f"{what}.gif"
    elif args:
        raise UsageError("--args are for an environment given by name, and a run has its own: leave them out.")
    else:
        team, beside = load(what), str(Path(what) / "play.gif")
        if policy == "random":
            team, explore = random_team(team.env), True
    if not team.save_film(out or beside, episodes, seed, explore):
        raise UsageError(f"{team.env.name} cannot be rendered: its factory must accept render_mode='rgb_array'.")
    print(f"{episodes} episode{'s' * (episodes > 1)} of {team.env.name} → {out or beside}")
