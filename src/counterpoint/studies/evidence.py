"""What a run shows of itself: its settings and reports, and how its policy acts in some episodes.

`gather` collects it for one seed, and `why` draws conclusions. Settings and reports are read without jax. The policy plays
episodes if its environment is compiled and may be executed; otherwise it is examined in the observations of the run's replay,
if there is one, and `Case.note` says why.
"""

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from counterpoint.core.action_stats import AT_BOUND, heads_at, words_of
from counterpoint.core.errors import UsageError
from counterpoint.runs import Run, history, lock, trend
from counterpoint.runs.listing import flat

EPISODES = 64
"""Episodes that a policy plays at once."""
UNTRAINED = 4
"""Fresh teams that the trained one is compared with."""
MOST_NUMBERS = 8_000_000
"""Numbers to record of observations, at most; large worlds play fewer episodes."""
SAMPLES = 1024
"""Observations of each agent to examine, at most."""


class Speech(NamedTuple):
    """What an agent says in the observations that it was examined with."""

    share: float
    """Of its most frequent word."""
    variation: float
    """How much its message changes from one observation to another: 0 if never, 1 if always and wholly."""


class Agent(NamedTuple):
    """How one agent acts in the observations that it met."""

    name: str
    steps: int
    """Observations that it was examined with."""
    size: float
    """The 95th percentile of the absolute observation entries."""
    spread: float
    """The largest standard deviation of an observation entry."""
    alive: tuple[float, ...]
    """The share of units of each hidden layer that are active in some observation; empty if the network is no plain one."""
    entropy: float | None
    """Of its choices, relative to uniform choice; None without discrete actions or a plain network."""
    bounded: float | None
    """The share of its continuous actions that are at a bound; None without such actions."""
    stuck: float | None
    """The share of the entries of its continuous actions that are at the same bound in nearly all observations."""
    variation: float
    """How much its action changes if it sees another observation: 0 if not at all, 1 if wholly."""
    speech: Speech | None
    reward: float
    """Mean absolute reward of a step."""
    largest: float
    """Largest absolute reward of a step."""
    constant: bool
    """Whether every step paid the same."""


class Progress(NamedTuple):
    """How much a team learned: mean returns in the greedy or exploring play that suits it better."""

    untrained: float
    last: float
    best: float
    spread: float
    """The standard deviation of an episode's return in untrained play."""

    @property
    def learned(self) -> bool:
        """Whether the last policy is clearly better than an untrained one."""
        return self._gained(self.last)

    @property
    def lost(self) -> bool:
        """Whether the best policy was clearly better than an untrained one, and the last lost half of that."""
        return self._gained(self.best) and self.best - self.last > 0.5 * (self.best - self.untrained)

    def _gained(self, score: float) -> bool:
        return score - self.untrained > max(0.3 * self.spread, 1e-3 * abs(self.untrained), 1e-9)


@dataclass(frozen=True)
class Case:
    """All that is known about one seed of a run."""

    run: Run
    settings: dict[str, Any]
    """All settings by name, without their groups."""
    seed: int
    rows: list[Any]
    """The reports of the seed."""
    all_rows: list[Any]
    """The reports of all seeds."""
    finished: bool
    running: bool
    diverged: str
    """The sentence with which training gave up, if it diverged."""
    replays: bool
    """Whether the algorithm learns from a replay; otherwise from each rollout."""
    teams: dict[str, Progress] = field(default_factory=dict)
    agents: tuple[Agent, ...] = ()
    note: str = ""
    """Why the policy was not examined, if it was not."""

    def get(self, name: str, default: Any = None) -> Any:
        """Returns a setting."""
        return self.settings.get(name, default)

    @property
    def success(self) -> float | None:
        return trend.success(self.rows)

    @property
    def solved(self) -> bool:
        return self.success is not None and self.success >= trend.SOLVED

    @property
    def lost(self) -> bool:
        """Whether the run was once much better than it is."""
        return not self.solved and bool(self.teams) and all(team.lost for team in self.teams.values())

    @property
    def learned(self) -> bool | None:
        """Whether the last policy is better than an untrained one; None if nobody can tell."""
        if self.solved:
            return True
        if not self.teams:
            return trend.improved(self.rows)
        if any(team.learned and not team.lost for team in self.teams.values()):
            return True
        return False if len(self.teams) == 1 else None  # what one team wins another may lose

    @property
    def resting(self) -> bool:
        """Whether the run is far from success and its greedy returns stopped rising half-way."""
        if self.success is None or self.success > 0.5:
            return False
        curves = trend.returns(self.rows, "eval/team/") or trend.returns(self.rows)
        return all(len(values) >= 6 and trend.rise(values[len(values) // 2 :]) <= 0 for values in curves.values())

    @property
    def failing(self) -> bool:
        return self.learned is not True or self.resting

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return int(max(trend.finite(self.rows, "step"), default=0))

    @property
    def updates(self) -> int:
        """Updates of each agent so far, about."""
        passes = self.get("updates", 1) if self.replays else self.get("epochs", 1) * self.get("minibatches", 1)
        late = self.get("warmup", 0) if self.replays else 0
        return int(max(0, self.steps - late) // max(1, self.get("update_every", 1)) * passes)


def gather(run: Run, seed_index: int | None = None, env: str = "", trust: bool = False, play: bool = True) -> Case:
    """Returns what is known about a seed of a run; None stands for the seed with the worst score."""
    settings = flat(run.config)
    count, first = int(settings.get("num_seeds", 1)), int(settings.get("seed", 0))
    if seed_index is not None:
        run.require_seed(seed_index)
    all_rows = run.rows()
    index = worst_seed(all_rows, first, count) if seed_index is None else seed_index
    case = Case(
        run=run,
        settings=settings,
        seed=first + index,
        rows=trend.of_seed(all_rows, first + index),
        all_rows=all_rows,
        finished=_is_finished(run),
        running=lock.owner(run.path) is not None,
        diverged=run.divergence(),
        replays="entropy_steps" not in settings,  # which all on-policy algorithms have
    )
    return _examined(case, index, env, trust) if play else case


def worst_seed(rows: trend.Rows, first: int, count: int) -> int:
    """Returns the index of the seed with the lowest last score."""
    scores = {row["seed"] - first: score for row in rows if (score := history.score(row)) is not None}
    return min(range(count), key=lambda k: scores.get(k, (math.inf,)))


def _is_finished(run: Run) -> bool:
    try:
        return bool(run.policy_about().get("finished"))
    except UsageError:
        return False


def _examined(case: Case, index: int, env: str, trust: bool) -> Case:
    """Returns the case with what its policy shows in some episodes, or else in the run's replay, with a note that says why."""
    from counterpoint.policies.policy import load, load_closed

    try:
        last = load(case.run, index, "last", env, trust)
        if last.env.compiled is not None:
            exists = (history.folder(case.run) / "best.safetensors").exists()
            best = load(case.run, index, "best", env, trust) if exists else last
            return replace(case, **_played(last, best.parameters))
        reason = f"Python steps {last.env.name}, so it was not played"
    except UsageError as error:
        reason = str(error).rstrip(".")
    try:
        agents = tuple(_replayed(load_closed(case.run, index, "last"), case.run, index))
    except UsageError:
        agents = ()
    looked = "settings, reports and the replay" if agents else "settings and reports"
    return replace(case, agents=agents, note=f"only {looked} were examined: {reason}")


# --- What a policy does.


class Record(NamedTuple):
    """Episodes of a policy, [T, E, …]."""

    obs: Any
    greedy: Any
    """What the policy would do without exploring."""
    reward: Any
    alive: Any
    """Whether an agent still played, [T, E, N]."""
    legal: Any
    returns: Any
    """[E, N]."""


def _played(last: Any, best: Any) -> dict[str, Any]:
    """Returns the progress of each team and how the last policy's agents act."""
    import jax

    from counterpoint.core import prng

    env, algo, spec = last.env.compiled, last.algo, last.env.spec
    episodes = int(np.clip(MOST_NUMBERS // (env.max_steps * spec.num_agents * spec.obs_size), 4, EPISODES))
    play = jax.jit(lambda policy, key, explore: _record(env, algo, policy, key, explore, episodes))
    fresh = jax.jit(lambda key: algo.policy(algo.init(key)))

    def returns(policies: list[Any], explore: bool) -> np.ndarray:
        keys = [prng.key(1000 + k) for k in range(len(policies))]
        played = [np.asarray(play(p, key, explore).returns) for p, key in zip(policies, keys, strict=True)]
        return np.concatenate(played)

    untrained = [fresh(prng.key(7 + k)) for k in range(UNTRAINED)]
    fresh_play = {explore: returns(untrained, explore) for explore in (False, True)}
    last_play = {explore: returns([last.parameters] * UNTRAINED, explore) for explore in (False, True)}
    best_play = returns([best] * UNTRAINED, False)
    teams = {}
    for team in dict.fromkeys(spec.teams):
        own = [i for i, name in enumerate(spec.teams) if name == team]
        start = max((fresh_play[explore][:, own].mean(1) for explore in (False, True)), key=np.mean)
        end = max(float(last_play[explore][:, own].mean()) for explore in (False, True))
        teams[team] = Progress(float(start.mean()), end, max(end, float(best_play[:, own].mean())), float(start.std()))
    record = jax.device_get(play(last.parameters, prng.key(99), True))
    return {"teams": teams, "agents": tuple(_agents(last, record))}


def _record(env: Any, algo: Any, policy: Any, key: Any, explore: Any, episodes: int) -> Record:
    """Returns episodes side by side, each to its end, greedy or exploring."""
    import jax
    import jax.numpy as jnp

    from counterpoint.training.evaluate import LATE
    from counterpoint.training.rollout import legal_actions, move, start

    key_start, key_run = jax.random.split(key)
    envs = start(env, algo, key_start, episodes)

    def advance(carry: Any, time: Any) -> Any:
        envs, live = carry
        key_act, key_step = jax.random.split(jax.random.fold_in(key_run, time))
        legal = legal_actions(env, envs)
        drawn, after, _ = algo.act(policy, envs.carry, envs.obs, key_act, jnp.asarray(LATE), legal)
        greedy, quietly = algo.greedy(policy, envs.carry, envs.obs, legal)
        action, memory = jax.tree.map(lambda a, b: jnp.where(explore, a, b), (drawn, after), (greedy, quietly))
        moved, result = move(env, envs, action, memory, key_step)
        playing = jnp.broadcast_to(live[:, None], envs.alive.shape)
        moved = moved._replace(returns=jnp.where(playing, moved.returns, envs.returns))
        alive = envs.alive & playing
        seen = (envs.obs, greedy, result.reward, alive, legal)
        return (moved, live & jnp.any(moved.alive, axis=1)), seen

    (envs, _), seen = jax.lax.scan(advance, (envs, jnp.ones(episodes, bool)), jnp.arange(env.max_steps))
    return Record(*seen, returns=envs.returns)


def _replayed(team: Any, run: Run, index: int) -> list[Agent]:
    """Returns how a policy acts in the observations of the run's replay, without its environment; none without a replay."""
    import jax

    from counterpoint.core import prng

    spec, saved = team.env.spec, run.load()
    n, o, a = spec.num_agents, spec.obs_size, spec.act_size
    least = n * (2 * o + a + 3)
    if saved is None or saved.ring is None or saved.ring.shape[-1] < least or team.env.has_masks:
        return []
    count = int(run.config.get("training", {}).get("num_seeds", 1))
    ring = saved.ring[index : index + 1] if count > 1 else saved.ring  # the devices of one seed share its transitions
    rows = ring.reshape(-1, ring.shape[-1])
    rows = rows[np.random.default_rng(0).permutation(len(rows))[: 4 * SAMPLES]]
    sizes = np.cumsum([n * o, n * a, n, n * o, n])
    obs, _, reward, _, _, rest = np.split(rows, sizes, axis=1)
    alive, obs = rest[:, :n] > 0, np.nan_to_num(obs.reshape(-1, n, o))
    carry = jax.vmap(team.algo.begin)(jax.random.split(prng.key(0), len(obs)))
    greedy = np.asarray(team.algo.greedy(team.parameters, carry, obs, None)[0])
    return _agents(team, Record(*(each[:, None] for each in (obs, greedy, reward, alive)), legal=None, returns=None))


def _agents(team: Any, record: Record) -> list[Agent]:
    """Returns how each agent acts in the recorded observations."""
    from counterpoint.core import numpy_policy
    from counterpoint.core.spaces import Box

    spec, words, plain = team.env.spec, words_of(team.env), _plain(team)
    generator, found = np.random.default_rng(0), []
    for i, name in enumerate(spec.agents):
        alive = np.asarray(record.alive)[..., i]
        picked = generator.permutation(np.argwhere(alive))[:SAMPLES]
        at = (picked[:, 0], picked[:, 1], i)
        obs, action = np.asarray(record.obs)[at], np.asarray(record.greedy)[at][:, : spec.act_sizes[i]]
        legal = None if record.legal is None else np.asarray(record.legal)[at][:, : spec.act_sizes[i]]
        space, size, units, entropy = spec.action_spaces[i], spec.obs_sizes[i], (), None
        if plain is not None and len(obs):
            one = numpy_policy.only(plain, i, plain.layers[0].weight.shape[1])
            seen = np.pad(obs, ((0, 0), (0, one.layers[0].weight.shape[1] - obs.shape[1])))[:, None]
            units = _active(one, seen)
            if not isinstance(space, Box):
                raw = numpy_policy.outputs(one, seen)[:, 0, : space.size]
                action = _probabilities(np.where(legal, raw, -1e9) if legal is not None else raw, space.heads)
                entropy = _entropy(action, space.heads, legal)
        variation = _variation(action, heads_at(space), generator)
        box = np.abs(action) >= AT_BOUND if isinstance(space, Box) and len(action) else None
        reward = np.asarray(record.reward)[..., i][alive]
        found.append(
            Agent(
                name=name,
                steps=len(obs),
                size=float(np.percentile(np.abs(obs[:, :size]), 95)) if obs[:, :size].size else 0.0,
                spread=float(obs[:, :size].std(0).max(initial=0.0)) if len(obs) else 0.0,
                alive=units,
                entropy=entropy,
                bounded=None if box is None else float(box.mean()),
                stuck=None if box is None else float((np.abs(np.mean(np.sign(action) * box, axis=0)) > 0.95).mean()),
                variation=variation,
                speech=_speech(action, words.get(i), generator),
                reward=float(np.abs(reward).mean()) if reward.size else 0.0,
                largest=float(np.abs(reward).max(initial=0.0)),
                constant=bool(reward.size and np.ptp(reward) <= 1e-6 * np.abs(reward).max()),
            )
        )
    return found


def _plain(team: Any) -> Any:
    """Returns the actors as plain networks of NumPy, or None if they are something else."""
    import jax

    from counterpoint.core import numpy_policy

    actors = team.actors(team.parameters)
    if actors is None:
        return None
    layers = numpy_policy.layers_of(*jax.device_get((actors.layers, actors.std)))
    spaces = tuple(map(numpy_policy.space_of, team.env.spec.action_spaces))
    return numpy_policy.make_team(layers, spaces, numpy_policy.Rules(**actors.rules))


def _active(one: Any, seen: np.ndarray) -> tuple[float, ...]:
    """Returns the share of units of each hidden layer that are above zero in some observation."""
    from counterpoint.core import numpy_policy

    sums = (numpy_policy.outputs(one._replace(layers=one.layers[: depth + 1]), seen) for depth in range(len(one.layers) - 1))
    return tuple(float((each[:, 0] > 0).any(0).mean()) for each in sums)


def _probabilities(raw: np.ndarray, heads: tuple[int, ...]) -> np.ndarray:
    parts = []
    for start, stop in pairwise(np.cumsum((0, *heads))):
        weight = np.exp(raw[:, start:stop] - raw[:, start:stop].max(1, keepdims=True))
        parts.append(weight / weight.sum(1, keepdims=True))
    return np.concatenate(parts, axis=1)


def _entropy(probabilities: np.ndarray, heads: tuple[int, ...], legal: np.ndarray | None) -> float | None:
    """Returns the mean entropy of the heads relative to uniform choice, where there is a choice."""
    shares = []
    for start, stop in pairwise(np.cumsum((0, *heads))):
        p = probabilities[:, start:stop]
        count = np.full(len(p), stop - start) if legal is None else legal[:, start:stop].sum(1)
        entropy = -(p * np.log(np.maximum(p, 1e-12))).sum(1)
        shares.append(entropy[count > 1] / np.log(count[count > 1]))
    joined = np.concatenate(shares)
    return float(joined.mean()) if joined.size else None


def _variation(action: np.ndarray, heads: list[slice], generator: np.random.Generator) -> float:
    """Returns how much actions differ between observations: the mean distance of two, of the head where it is largest."""
    if len(action) < 2:
        return 1.0  # nothing can be said
    apart = np.abs(action - action[generator.permutation(len(action))]) / 2
    return max(float(apart[:, head].sum(1).mean()) for head in heads)


def _speech(action: np.ndarray, words: slice | None, generator: np.random.Generator) -> Speech | None:
    """Returns what an agent says, if it speaks."""
    if words is None or not len(action):
        return None
    said = action[:, words]
    chosen = np.bincount(said.argmax(1), minlength=said.shape[1])
    return Speech(float(chosen.max() / len(said)), _variation(said, [slice(None)], generator))
