"""Known settings by name."""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from counterpoint.config import Config, override, same_settings
from counterpoint.core.checks import LARGEST
from counterpoint.core.errors import UsageError


def preset(name: str) -> Config:
    """Returns the settings of that name."""
    if name not in PRESETS:
        close = difflib.get_close_matches(name, list(PRESETS), 1)
        hint = f" (perhaps {close[0]}?)" if close else ""
        raise UsageError(f"unknown preset {name!r}{hint}; known are {', '.join(PRESETS)}.")
    return dataclasses.replace(PRESETS[name], preset=name)


def start(chosen: Mapping[str, Any]) -> Config:
    """Returns where settings start from: the named preset, else the one that the environment needs, else the defaults.

    They have the chosen algorithm and number of episodes, and the schedules of a preset last as long in proportion. The
    caller overrides what else is chosen.
    """
    name, algorithm, scenario = (chosen.get(setting) or "" for setting in ("preset", "algorithm", "scenario"))
    if not name and scenario in OWN_PRESETS and same_settings(PRESETS[scenario].algorithm, algorithm):
        name = scenario
    config = preset(name) if name else Config()
    if algorithm:
        config = override(config, algorithm=algorithm)
    if chosen.get("num_episodes"):
        longer = override(config, num_episodes=chosen["num_episodes"])  # refuses what is not a number of episodes
        return stretched(config, longer.training.num_episodes)
    return config


SCHEDULES = ("lr_steps", "entropy_steps")
"""Settings that say when a step size has fallen to zero, where nothing more is learned, and an entropy's weight with it."""


def stretched(config: Config, num_episodes: int) -> Config:
    """Returns the settings with another number of episodes, and schedules that last as long in proportion.

    A schedule that is the algorithm's default was not made for a number of episodes, and stays.
    """
    longer, own, usual = override(config, num_episodes=num_episodes), vars(config.learning), vars(config.entry.settings())
    planned = config.training.num_episodes
    lengths = {name: own[name] for name in SCHEDULES if name in own and own[name] != usual[name]}
    lengths = {name: min(LARGEST, max(1, round(length * num_episodes / planned))) for name, length in lengths.items()}
    return override(longer, **lengths)


OWN_PRESETS = ("tennis",)
"""Worlds with a preset of their own name, which training there starts from: the authors' settings do not learn them."""

COMA_PARTICLES: dict[str, Any] = {
    **{"flavour": "openai", "num_episodes": 100_000, "num_envs": 32, "update_every": 800, "standardise_rewards": True},
    **{"lr": 1e-3, "gamma": 0.99, "clip": 10.0, "num_units": 128, "critic_steps": 4, "epsilon_start": 0.1, "epsilon_end": 0.0},
    **{"entropy_start": 0.02, "entropy_end": 0.002, "entropy_steps": 1_500_000},
}
"""Random play meets everything there is in a particle world: little more is needed to explore."""

COMA_PATIENT: dict[str, Any] = {"num_episodes": 400_000, "lr": 5e-4, "critic_steps": 2, "entropy_steps": 4_000_000}
"""Three who share one reward take long to find out who goes where."""

PPO_PARTICLES: dict[str, Any] = {
    **{"flavour": "openai", "num_envs": 128, "update_every": 3200, "gamma": 0.95, "epochs": 5, "minibatches": 4},
    **{"num_episodes": 200_000, "report_every": 10_000, "save_rate": 10_000, "lr_steps": 5_000_000},
    **{"entropy_end": 0.001, "entropy_steps": 4_000_000},
}
"""Five passes over one episode of each of 128 copies; steps and entropy fall, so that teams arrive."""

PPO_SPREAD: dict[str, Any] = {"scenario": "simple_spread", **PPO_PARTICLES, "gamma": 0.75}

PPO_SHARED: dict[str, Any] = {
    **PPO_PARTICLES,
    **{"gamma": 0.8, "share": "role", "lr": 1e-3, "critic_lr": 1e-3, "entropy_end": 0.0},
}
"""Agents of a role share parameters: they cannot settle who always goes where, so they learn to decide it by position, and what
one learns to say the other learns to understand."""

PPO_SWITCH: dict[str, Any] = {"num_envs": 32, "update_every": 1600, "entropy_start": 0.03, "entropy_end": 0.003}
"""A corridor is found by exploring for long."""

PPO_FOUR: dict[str, Any] = PPO_SWITCH | {"scenario": "switch4", "entropy_end": 0.0, "entropy_steps": 800_000}
"""Four who have found the way lose it again unless steps and entropy fall to zero."""

PRECISE: dict[str, Any] = {
    **{"num_envs": 30, "update_every": 30, "batch_size": 256, "buffer_size": 60_000},
    **{"lr": 3e-3, "gamma": 0.75, "num_units": 128, "temperature": 0.5, "critic_activation": "silu"},
}
"""Fresh data, many small steps that fall to zero (--lr-steps), a short horizon and smooth critics: teams that arrive."""

SPEAKER: dict[str, Any] = {"scenario": "simple_speaker_listener", "num_episodes": 15_000, "lr_steps": 12_300, **PRECISE}

VERSUS: dict[str, Any] = PRECISE | {
    **{"gamma": 0.95, "num_units": 64, "buffer_size": 200_000, "num_episodes": 15_000, "lr_steps": 12_300}
}
"""Two teams: a longer memory keeps many versions of the opponents, so that a team does not adapt to the last one only."""

TWINS: dict[str, Any] = {
    **{"num_envs": 10, "update_every": 10, "batch_size": 256, "buffer_size": 200_000},
    **{"lr": 1e-3, "gamma": 0.9, "num_units": 128, "critic_activation": "silu"},
}
"""Of MATD3 and MASAC: small batches, an update for every step of ten environments, smooth critics."""

TENNIS: dict[str, Any] = {"scenario": "tennis", "max_episode_len": 300}
"""Whoever has learned would otherwise play for 1000 steps, most of which teach nothing new."""

PPO_TENNIS: dict[str, Any] = TENNIS | {
    **{key: value for key, value in PPO_SHARED.items() if key != "flavour"},
    **{"share": "all", "gamma": 0.99, "norm": "layer", "entropy_start": 0.01, "entropy_steps": 2_500_000},
    **{"lr_steps": 2_500_000, "num_episodes": 25_000, "report_every": 2500, "save_rate": 5000},
}
"""Both players are alike and share all parameters, so that each learns from both."""

RALLY: dict[str, Any] = TENNIS | {
    **{"num_episodes": 2500, "report_every": 100, "save_rate": 200, "num_envs": 8, "update_every": 8},
    **{"updates": 4, "batch_size": 256, "buffer_size": 200_000, "warmup": 2000, "lr": 1e-3, "gamma": 0.99, "tau": 0.005},
    **{"clip": 1.0, "norm": "layer", "n_step": 5, "critic_activation": "silu", "share": "all", "lr_steps": 120_000},
}
"""Positions and speeds of up to 30 need normalised layers; a hit pays only when the ball has crossed the net, steps later. Both
players are alike and share all parameters: without that, MASAC failed on two of four seeds."""

RALLY_NOISE: dict[str, Any] = {
    **{"num_episodes": 4000, "noise": "ou", "noise_start": 1.0, "noise_end": 0.05, "noise_steps": 80_000}
}
"""MATD3 explores by noise that lasts, and finds the first hits later than MASAC."""

PRESETS: dict[str, Config] = {
    "demo": override(Config(), exp_name="demo", **SPEAKER),
    "tuned-simple": override(
        Config(), scenario="simple", num_episodes=4000, lr_steps=9_700, **PRECISE | {"num_envs": 10, "update_every": 10}
    ),
    "tuned-simple_spread": override(
        Config(),
        algorithm="mappo",
        scenario="simple_spread",
        **PPO_SHARED | {"num_episodes": 240_000, "lr_steps": 6_000_000, "entropy_steps": 3_000_000},
    ),
    "tuned-simple_reference": override(
        Config(),
        algorithm="mappo",
        scenario="simple_reference",
        **PPO_SHARED | {"flavour": "mpe2", "num_episodes": 120_000, "lr_steps": 3_000_000, "entropy_steps": 1_500_000},
    ),
    "tuned-simple_speaker_listener": override(Config(), **SPEAKER),
    **{
        f"tuned-{name}": override(Config(), scenario=name, **VERSUS)
        for name in ("simple_adversary", "simple_push", "simple_tag", "simple_crypto", "simple_world_comm")
    },
    "maddpg-speaker": override(
        Config(),
        scenario="simple_speaker_listener",
        flavour="openai",
        num_episodes=25_000,
        lr=1e-3,
        update_every=25,
        batch_size=256,
    ),
    "authors-spread": override(Config(), scenario="simple_spread", flavour="openai", init="glorot"),
    "authors-speaker": override(Config(), scenario="simple_speaker_listener", flavour="openai", init="glorot"),
    "maddpg-spread": override(
        Config(),
        scenario="simple_spread",
        flavour="openai",
        num_episodes=25_000,
        lr=1e-3,
        gamma=0.75,
        init="glorot",
        num_units=128,
        update_every=10,
        batch_size=256,
    ),
    "matd3-spread": override(
        Config(), algorithm="matd3", scenario="simple_spread", actions="continuous", num_episodes=10_000, **TWINS
    ),
    "masac-spread": override(Config(), algorithm="masac", scenario="simple_spread", num_episodes=25_000, **TWINS),
    "masac-switch2-v0": override(
        Config(),
        algorithm="masac",
        scenario="switch2",
        scenario_args=("clock=False",),
        recurrent=True,
        num_episodes=10_000,
        num_envs=16,
        update_every=160,
        updates=2,
        batch_size=512,
        buffer_size=100_000,
        warmup=5000,
        lr=1e-3,
        gamma=0.97,
    ),
    "tuned-tennis": override(Config(), algorithm="mappo", **PPO_TENNIS),
    "masac-tennis": override(Config(), algorithm="masac", **RALLY),
    "matd3-tennis": override(Config(), algorithm="matd3", **RALLY | RALLY_NOISE),
    "tennis": override(
        Config(),
        scenario="tennis",
        num_episodes=1200,
        report_every=100,
        save_rate=200,
        update_every=1,
        updates=2,
        batch_size=128,
        buffer_size=200_000,
        warmup=1000,
        lr=1e-3,
        gamma=0.99,
        tau=0.005,
        clip=1.0,
        init="glorot",
        noise="ou",
        noise_start=0.5,
        noise_end=0.1,
        noise_steps=20_000,
    ),
    "coma-notes": override(
        Config(),
        algorithm="coma",
        scenario="switch2",
        num_episodes=10_000,
        num_envs=10,
        update_every=500,
        lr=1e-4,
        critic_lr=5e-3,
        gamma=0.99,
        clip=10.0,
        td_lambda=0.0,
        target_every=10,
        epsilon_start=0.0,
        epsilon_end=0.0,
        entropy_start=0.0,
        entropy_end=0.0,
    ),
    "coma-switch2-v0": override(Config(), algorithm="coma", scenario="switch2", scenario_args=("clock=False",), recurrent=True),
    "coma-switch4": override(Config(), algorithm="coma", scenario="switch4", num_episodes=100_000),
    "coma-spread": override(
        Config(), algorithm="coma", scenario="simple_spread", **(COMA_PARTICLES | COMA_PATIENT), report_every=5000
    ),
    "coma-speaker": override(Config(), algorithm="coma", scenario="simple_speaker_listener", **COMA_PARTICLES),
    **{f"{name}-spread": override(Config(), algorithm=name, **PPO_SPREAD) for name in ("mappo", "ippo")},
    "tuned-switch2": override(Config(), algorithm="mappo", scenario="switch2", num_episodes=20_000, **PPO_SWITCH),
    "ippo-switch2": override(Config(), algorithm="ippo", scenario="switch2", num_episodes=20_000, **PPO_SWITCH),
    "tuned-switch4": override(Config(), algorithm="mappo", num_episodes=60_000, lr_steps=1_000_000, **PPO_FOUR),
    "ippo-switch4": override(Config(), algorithm="ippo", num_episodes=90_000, lr_steps=1_500_000, lr=2.5e-4, **PPO_FOUR),
}
