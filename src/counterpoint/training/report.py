"""Reports: a row of metrics per seed, from the sums since the last report and an evaluation."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from counterpoint.config import Config
from counterpoint.core import prng
from counterpoint.core.action_stats import ActionSums, action_statistics, words_of
from counterpoint.core.spaces import Spec
from counterpoint.training.engine import Engine
from counterpoint.training.evaluate import Episodes
from counterpoint.training.loop import Loop, Program


def evaluation(config: Config, program: Program, engine: Engine, loop: Loop) -> Episodes | None:
    """Returns the mean of each seed's greedy episodes, [K, …], or None if the settings ask for none."""
    if not config.evaluation.eval_episodes:
        return None
    policies = jax.device_get(program.algo.policy(loop.agents))
    seeds = jnp.asarray(config.training.seed + np.arange(program.num_seeds), jnp.uint32)
    keys = jax.vmap(lambda seed, step: jax.random.fold_in(jax.random.fold_in(prng.key(seed), 0xE7A1), step))(
        seeds, jnp.asarray(jax.device_get(loop.step))
    )
    episodes = jax.device_get(engine.evaluate(policies, keys, config.evaluation.eval_episodes))
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32).mean(axis=1), episodes)


def rows(config: Config, program: Program, engine: Engine, loop: Loop, seconds: float) -> Iterator[dict[str, Any]]:
    """Yields a row of the metrics table for each seed."""
    spec, window = program.env.spec, jax.device_get(loop.window)
    teams, judged = sorted(set(spec.teams)), evaluation(config, program, engine, loop)
    for k in range(program.num_seeds):
        count = max(int(window.finished.episodes[k]), 1)
        returns = window.finished.returns[k] / count
        row: dict[str, Any] = {
            "step": int(loop.step[k]),
            "episode": int(loop.episodes[k]),
            "seed": config.training.seed + k,
            "seconds": round(seconds, 3),
            "steps_per_second": round(int(loop.step[k]) / max(seconds, 1e-9), 1),
            "length": float(window.finished.length[k]) / count,
            "return_sum": float(returns.sum()),
        }
        row |= _by_team("team", spec, teams, returns) | _by_agent("return", spec, returns)
        if judged is not None:
            row |= _by_team("eval/team", spec, teams, judged.returns[k])
            row |= _by_agent("eval/return", spec, judged.returns[k])
            row |= {"eval/length": float(judged.length[k])}
            row |= {f"eval/{name}": float(value[k]) for name, value in judged.metrics.items()}
            row |= _of_actions(program, judged.actions, k)
        updates = int(window.updates[k])
        for name, sums in window.metrics.items():
            row |= _by_agent(name, spec, sums[k] / updates if updates else np.full(spec.num_agents, np.nan))
        yield row


def _of_actions(program: Program, sums: ActionSums | None, k: int) -> dict[str, float]:
    """Returns how much the actions of one seed's evaluation vary, by agent."""
    if sums is None:
        return {}
    own = ActionSums(*(None if each is None else each[k] for each in sums))
    found = action_statistics(program.env.spec, own, words_of(program.env))
    return {f"eval/{name}/{agent}": value for name, by_agent in found.items() for agent, value in by_agent.items()}


def _by_agent(name: str, spec: Spec, values: Any) -> dict[str, float]:
    return {f"{name}/{agent}": float(value) for agent, value in zip(spec.agents, values, strict=True)}


def _by_team(name: str, spec: Spec, teams: list[str], values: Any) -> dict[str, float]:
    """Returns the mean over each team's agents."""
    return {
        f"{name}/{team}": float(np.mean([v for v, t in zip(values, spec.teams, strict=True) if t == team])) for team in teams
    }
