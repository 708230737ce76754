"""Why a run does not learn: each cause is one small function that looks at the evidence and returns a finding or nothing.

`CAUSES` lists them, the likeliest explanation first, each with the causes that it makes superfluous: whoever has too large a
step size also has dead units, and needs to hear of the step size alone. Most causes are symptoms that a team which learned may
have as well, so they count only if the run is failing: if its policy is no better than an untrained one, or if it rests far
from success.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from counterpoint.core.checks import flag
from counterpoint.runs import Run, open_run, stats, trend
from counterpoint.studies.evidence import Agent, Case, gather

LARGE_STEP, DOUBTFUL_STEP, GOOD_STEP = 0.25, 0.04, 0.02
"""Adam's step relative to a typical initial weight: surely too large; too large if scores swing; what to try instead."""
FEW_UPDATES, FEW_ROLLOUTS = 500, 20
"""Fewer updates from replay, or rollouts, teach hardly anything."""
FEW_REPORTS = 10
"""A run that is being trained and has fewer reports than this may yet meet its first reward."""
FEW_EPISODES = 40
"""A replay of fewer episodes than this forgets."""
DEAD = 0.1
"""The share of active units below which a layer passes hardly anything on."""
LARGE_REWARD, SMALL_REWARD = 100.0, 1e-3
"""Mean rewards of a step above, and largest rewards below, for which no default is made."""
LARGE_OBS, SMALL_OBS = 100.0, 0.02
"""The size of observations above, and their spread below, for which initial weights are not made."""
NO_ENTROPY = 0.02
"""The entropy relative to uniform choice below which a policy hardly explores."""
CONSTANT = 0.02
"""How much actions differ between observations if the policy ignores them."""
MUTE = 0.05
"""How much messages differ between observations if they tell nothing."""
LUCKY = 0.25
"""The share of seeds that must have succeeded for the others to be unlucky; if fewer did, those were lucky."""
RUNAWAY = 3.0
"""How many times the largest value that rewards allow a critic may state."""


@dataclass(frozen=True)
class Finding:
    """One reason why a run does not learn."""

    name: str
    """In a few words, such as "dead units"."""
    words: str
    """What is wrong, in one sentence."""
    evidence: str
    """What shows it, with numbers."""
    cure: str
    """What to do about it."""


class Diagnosis(NamedTuple):
    """What was found in one seed of a run."""

    findings: list[Finding]
    case: Case


def why(
    run: str | Path | Run, seed_index: int | None = None, env: str = "", trust: bool = False, play: bool = True
) -> list[Finding]:
    """Returns why a run does not learn, the likeliest reason first; nothing if nothing is wrong.

    Of several seeds the worst is examined unless `seed_index` names one. `env` and `trust` are those of `counterpoint.load`:
    the policy of a run that names code and was not made by you on this machine plays only with one of them. Without `play`
    settings and reports alone are examined, which takes a moment.
    """
    return diagnose(run if isinstance(run, Run) else open_run(run), seed_index, env, trust, play)


def diagnose(run: Run, seed_index: int | None = None, env: str = "", trust: bool = False, play: bool = True) -> list[Finding]:
    """Returns why a run does not learn, the likeliest reason first; nothing if nothing is wrong."""
    return conclude(gather(run, seed_index, env, trust, play))


def examine(run: Run, seed_index: int | None = None, env: str = "", trust: bool = False) -> Diagnosis:
    """Returns the findings and the evidence that they come from."""
    case = gather(run, seed_index, env, trust)
    return Diagnosis(conclude(case), case)


def conclude(case: Case) -> list[Finding]:
    """Returns one finding per root cause, the likeliest first."""
    findings: list[Finding] = []
    explained: set[str] = set()
    for name, cause in CAUSES.items():
        if name not in explained and (found := cause.look(case)) is not None:
            findings.append(found)
            explained |= set(CAUSES) if cause.explains is ALL else set(cause.explains)
    return findings


# --- Causes.


def diverged(case: Case) -> Finding | None:
    """Numbers became infinite or NaN."""
    broken = [name for name in _losses(case) if np.isinf(trend.column(case.rows, name)).any() or _broke(case, name)]
    if not case.diverged and not broken:
        return None
    reward = "reward" in case.diverged and step_ratio(case) < LARGE_STEP  # a ruined actor ruins rewards, too
    evidence = case.diverged or f"{broken[0]} is not finite at the last report."
    cure = (
        "Correct the environment: every reward must be a finite number."
        if reward
        else f"Go on from the last good checkpoint with smaller steps: {_resume(case, '--lr', _smaller_lr(case))}."
    )
    return Finding("diverged", "Training gave up because numbers became infinite or NaN.", evidence, cure)


def unlucky_seed(case: Case) -> Finding | None:
    """Other seeds of the same run succeeded."""
    seeds = list(dict.fromkeys(row.get("seed") for row in case.all_rows))
    if len(seeds) < 2 or case.solved:
        return None
    shares = {seed: trend.success(trend.of_seed(case.all_rows, seed)) for seed in seeds}
    if all(share is not None for share in shares.values()):
        lucky = [seed for seed in seeds if (shares[seed] or 0) >= trend.SOLVED]
        what, mine = "success", shares[case.seed]
        alike = mine is None or mine > 0.5
    else:
        scores = {seed: _last_return(trend.of_seed(case.all_rows, seed)) for seed in seeds}
        split = stats.split_of([list(scores.values())]) if all(map(math.isfinite, scores.values())) else None
        lucky = [seed for seed in seeds if split is not None and scores[seed] > split]
        what, mine, shares = "return", scores[case.seed], dict(scores)
        alike = case.seed in lucky
    if alike or len(lucky) < LUCKY * len(seeds):
        return None
    best = max(lucky, key=lambda seed: shares[seed] or 0)
    first = int(case.get("seed", 0))
    return Finding(
        "unlucky seed",
        f"Seed {case.seed} failed where other seeds with the same settings succeeded.",
        f"{len(lucky)} of {len(seeds)} seeds succeeded; the {what} of seed {case.seed} is {mine:.2f}, that of seed {best}"
        f" {shares[best]:.2f}.",
        f"Use a seed that succeeded (--seed-index {int(best) - first}), and report the share of seeds that do;"
        " slower decay of exploration and smaller steps make more of them succeed.",
    )


def no_reward(case: Case) -> Finding | None:
    """Every reward was the same."""
    zero = [name for name in _columns(case, "return/") if trend.finite(case.rows, name).any()]
    if case.solved or case.learned or not case.rows or not _columns(case, "return/"):
        return None
    if case.running and len(case.rows) < FEW_REPORTS:
        return None
    if case.agents and all(agent.constant for agent in case.agents) and not _varied_returns(case):
        paid, what = case.agents[0].largest, "every step of the episodes played paid the same"
    elif not zero:
        paid, what = 0.0, f"all returns of {len(case.rows)} reports are 0"
    else:
        return None
    return Finding(
        "no reward",
        "The reward never changes, so there is nothing to learn from.",
        f"{what[0].upper()}{what[1:]} ({paid:g}).",
        "Check that the environment's reward depends on the actions; if it is rare, pay for steps towards it,"
        f" or explore more ({_explore(case)}).",
    )


def large_steps(case: Case) -> Finding | None:
    """The learning rate changes weights by too large a part of themselves."""
    ratio = step_ratio(case)
    if not case.failing or ratio < DOUBTFUL_STEP:
        return None
    swings = _swings(case)
    if ratio < LARGE_STEP and not swings:
        return None
    evidence = (
        f"One update with --lr {case.get('lr'):g} changes a typical weight by up to {100 * ratio:.0f} % of its initial size"
    )
    dead = _worst_layer(case.agents)
    parts = [evidence, swings, f"{100 * (1 - dead[1]):.0f} % of the units of a layer of {dead[0]} are dead" if dead else ""]
    return Finding(
        "learning rate too large",
        "Each update overshoots, so the policies jump about instead of improving.",
        "; ".join(filter(None, parts)) + ".",
        f"Take smaller steps, such as --lr {_smaller_lr(case):g}, or let them fall to zero by --lr-steps.",
    )


def reward_unit(case: Case) -> Finding | None:
    """Rewards are so large or so small that the settings do not fit them."""
    adapts = case.get("standardise_rewards") or case.get("value_norm", "none") != "none"
    if not case.failing or adapts:
        return None
    mean, largest = _reward_sizes(case)
    if mean < LARGE_REWARD and not 0 < largest < SMALL_REWARD:
        return None
    large = mean >= LARGE_REWARD
    size = f"A step pays {mean:.3g} on average" if large else f"No step pays more than {largest:.2g}"
    loss = _last(case, "critic_loss")
    seen = f"; the critics' loss is {loss:.2g}" if loss is not None else ""
    option = "--standardise-rewards, or " if "standardise_rewards" in case.settings else ""
    return Finding(
        "rewards in another unit",
        f"The rewards are far {'larger' if large else 'smaller'} than the settings expect: step sizes, clipping and costs suit"
        " rewards near 1.",
        f"{size}{seen}.",
        f"Choose {option}divide the rewards in the environment so that a step pays about 1 (see the page on units of returns).",
    )


def observation_unit(case: Case) -> Finding | None:
    """Observations are so large that the initial weights do not fit them."""
    large = [agent for agent in case.agents if agent.size >= LARGE_OBS]
    if not case.failing or case.get("norm", "none") != "none" or not large:
        return None
    agent = max(large, key=lambda each: each.size)
    option = ", or choose --norm layer" if "norm" in case.settings and agent.spread > 0.1 * agent.size else ""
    return Finding(
        "observations in another unit",
        f"The observations of {agent.name} are far larger than networks expect: initial weights and step sizes suit numbers"
        " near 1.",
        f"Entries reach {agent.size:.3g} and differ by up to {agent.spread:.3g} between {agent.steps} observations.",
        f"Shift and divide the observations in the environment so that they are near 1{option}.",
    )


def too_little_data(case: Case) -> Finding | None:
    """The run ended after hardly any updates."""
    if case.running:
        return None
    far = case.success is not None and case.success <= 0.5
    if case.solved or case.lost or (case.learned and not far) or (case.learned is None and case.updates > 0):
        return None
    few = case.updates < FEW_UPDATES if case.replays else case.steps // max(1, case.get("update_every", 1)) < FEW_ROLLOUTS
    if not few:
        return None
    steps, every = case.steps, case.get("update_every", 1)
    what = (
        f"{case.updates} updates in {steps} steps: one per {every} steps after a warm-up of {case.get('warmup', 0)}"
        if case.replays
        else f"{steps // max(1, every)} rollouts in {steps} steps: one per {every} steps"
    )
    episodes = int(case.get("num_episodes", 0))
    wanted = episodes * FEW_UPDATES // max(1, case.updates) if case.replays else 0
    longer = _resume(case, "--num-episodes", min(max(10 * episodes, wanted), 100 * max(episodes, 1)))
    return Finding(
        "too little data",
        "The run ended before it learned from enough data.",
        f"It made {what}.",
        f"Train longer ({longer}), or in a new run update more often (--update-every {max(1, every // 10)}).",
    )


def forgetting(case: Case) -> Finding | None:
    """The replay holds only the last few episodes, and what was learned is gone or comes and goes."""
    if case.solved or not case.replays or "buffer_size" not in case.settings:
        return None
    held = case.get("buffer_size") / max(1.0, _length(case))
    small = held < FEW_EPISODES and case.steps > 10 * case.get("buffer_size")
    swings = _swings(case)
    if not small or not (case.failing or case.lost or swings):
        return None
    turned = case.steps // case.get("buffer_size")
    enough = _round(max(200.0 * _length(case), 50.0 * case.get("batch_size", 1), 10.0 * case.get("buffer_size")))
    return Finding(
        "replay turned over",
        "The replay is so small that critics learn the last few episodes and forget all others.",
        f"The replay holds {case.get('buffer_size')} transitions, {held:.0f} episodes, and was overwritten {turned} times"
        f"{_fall(case) or (swings and f'; {swings}')}.",
        f"Keep more: --buffer-size {enough}.",
    )


def dead_units(case: Case) -> Finding | None:
    """Hidden units of an actor are zero whatever it observes."""
    worst = _worst_layer(case.agents)
    if not case.failing or worst is None:
        return None
    agent = next(agent for agent in case.agents if agent.name == worst[0])
    if agent.spread < SMALL_OBS:  # units that are shown the same are alive or dead by their biases
        return None
    depth = agent.alive.index(worst[1]) + 1
    norm = "choose --norm layer" if case.get("norm") == "none" else "start anew with another seed"
    return Finding(
        "dead units",
        f"Hidden units of {agent.name} output zero whatever it observes, so they neither act nor learn.",
        f"{100 * (1 - worst[1]):.0f} % of the units of its hidden layer {depth} are zero in all of {agent.steps} observations.",
        f"Take smaller steps (--lr {_smaller_lr(case):g}), and {norm}.",
    )


def runaway_q(case: Case) -> Finding | None:
    """Critics state values that no rewards can add up to."""
    gamma, name = float(case.get("gamma", 1.0)), "q" if _columns(case, "q/") else "value"
    if case.solved or gamma >= 1 or not _columns(case, f"{name}/"):
        return None
    _, largest = _reward_sizes(case)
    if case.get("standardise_rewards"):
        largest = 10.0
    alpha = abs(_last(case, "alpha") or 0.0)
    bound = (largest + alpha * 3.0) / (1 - gamma)
    stated = {column: trend.finite(case.rows, column) for column in _columns(case, f"{name}/")}
    column, values = max(stated.items(), key=lambda item: abs(item[1][-1]) if item[1].size else 0.0)
    if not values.size or not bound or abs(values[-1]) < RUNAWAY * bound:
        return None
    grown = f", up from {values[0]:.3g} at the first report" if abs(values[-1]) > 2 * abs(values[0]) else ""
    tau = f"--tau {min(case.get('tau'), 0.01):g}, " if case.get("tau", 0) > 0.01 else ""
    lower = f"--gamma {1 - _round(3 * (1 - gamma)):g}, " if gamma > 0.96 else ""
    rate = case.get("critic_lr") or case.get("lr")
    slower = (
        f"--critic-lr {min(_round(float(rate) / 10), _good_lr(case)):g}"
        if case.get("critic_lr")
        else f"--lr {_smaller_lr(case):g}"
    )
    return Finding(
        "runaway Q",
        f"The critic of {column.rpartition('/')[2]} believes in values that its rewards cannot add up to.",
        f"It states {values[-1]:.3g} on average{grown}; rewards of at most {largest:.3g} discounted by {gamma:g} give at most"
        f" {bound:.3g}.",
        f"Let targets follow slower and critics learn slower: {tau}{lower}{slower}.",
    )


def at_the_bounds(case: Case) -> Finding | None:
    """Continuous actions are at their bounds whatever is observed."""
    stuck = [agent for agent in case.agents if (agent.stuck or 0) >= 0.5 or (agent.bounded or 0) >= 0.95]
    if not case.failing or not stuck:
        return None
    agent = max(stuck, key=lambda each: each.bounded or 0)
    cost = case.get("logit_cost")
    option = f"--logit-cost {max(10 * cost, 1e-2):g}, " if cost is not None else ""
    noise = f"--noise-start {max(0.3, case.get('noise_start')):g}, " if "noise_start" in case.settings else ""
    return Finding(
        "stuck at the bounds",
        f"The actions of {agent.name} are at the ends of their range, where the gradient of its network vanishes.",
        f"{100 * (agent.bounded or 0):.0f} % of its actions are at a bound, and {100 * (agent.stuck or 0):.0f} % of their"
        f" entries at the same one in nearly all of {agent.steps} observations.",
        f"Penalise large outputs, explore more and take smaller steps: {option}{noise}--lr {_smaller_lr(case):g}.",
    )


def entropy_gone(case: Case) -> Finding | None:
    """A policy stopped exploring before it found anything."""
    gone = [agent for agent in case.agents if agent.entropy is not None and agent.entropy < NO_ENTROPY]
    if not case.failing or not gone:
        return None
    agent = min(gone, key=lambda each: each.entropy or 0)
    curve = trend.finite(case.rows, f"entropy/{agent.name}")
    fell = f"; it fell from {curve[0]:.2f} at the first report to {curve[-1]:.2g} nats at the last" if curve.size > 1 else ""
    return Finding(
        "entropy gone",
        f"{agent.name} stopped exploring: it is certain of every action, and the run is far from success.",
        f"The entropy of its choices is {100 * (agent.entropy or 0):.1f} % of that of uniform choice{fell}.",
        f"Keep it exploring: {_explore(case)}.",
    )


def mute_speaker(case: Case) -> Finding | None:
    """An agent says the same whatever it observes."""
    mute = [a for a in case.agents if a.speech and a.speech.variation < MUTE and a.spread > 1e-6]
    if case.solved or not mute or (case.success is None and case.learned):
        return None
    agent = mute[0]
    speech = agent.speech
    assert speech is not None
    return Finding(
        "mute speaker",
        f"The messages of {agent.name} do not depend on what it observes, so nobody can learn from them.",
        f"It prefers the same word in {100 * speech.share:.0f} % of {agent.steps} observations, and its messages differ by"
        f" {100 * speech.variation:.1f} % between two observations.",
        "Let critics see all agents (--algorithm maddpg), and let the speaker explore for longer"
        f" ({_explore(case)}); --preset tuned-simple_speaker_listener does both.",
    )


def ignores_observation(case: Case) -> Finding | None:
    """A policy does the same whatever it observes."""
    blind = [a for a in case.agents if a.variation < CONSTANT and not (a.speech and a.variation == a.speech.variation)]
    if not case.failing or not blind:
        return None
    agent = min(blind, key=lambda each: each.variation)
    said = f"Its action changes by {100 * agent.variation:.1f} % if it sees another of {agent.steps} observations"
    if agent.spread <= 1e-6:
        more, cure = "; they are all the same", "Check what the environment lets it observe: nothing there ever changes."
    elif agent.spread < SMALL_OBS:
        more = f"; their entries differ by {agent.spread:.2g} only"
        cure = f"Multiply its observations in the environment by about {_round(1 / agent.spread):g}, so that they differ by 1."
    else:
        more, cure = (
            "",
            f"Let it explore more ({_explore(case)}), and check that its observation says what its reward depends on.",
        )
    return Finding("ignores its observation", f"{agent.name} acts the same whatever it observes.", f"{said}{more}.", cure)


def collapsed(case: Case) -> Finding | None:
    """The run was once much better than it is."""
    if not case.lost:
        return None
    return Finding(
        "collapsed",
        "The run learned something and lost it again.",
        f"{_fall(case).lstrip('; ').capitalize()}.",
        "Use the best policy (--at best), and let steps fall to zero before the end (--lr-steps).",
    )


def stalled(case: Case) -> Finding | None:
    """Nothing was learned, and nothing above says why."""
    if case.learned is not False or not case.rows:
        return None
    team = next(iter(case.teams.values()), None)
    before = trend.returns(case.rows)
    curve = next(iter(before.values()), np.zeros(1))
    evidence = (
        f"An untrained team earns {team.untrained:.3g} per episode, and this one {team.last:.3g} after {case.updates} updates."
        if team
        else f"The return in training was {curve[0]:.3g} at first, and is {curve[-1]:.3g} after {case.updates} updates."
    )
    return Finding(
        "stalled",
        "The team is no better than an untrained one, and no other sign says why.",
        evidence,
        f"Try more exploration ({_explore(case)}), other seeds (--num-seeds 4) or a preset (counterpoint presets), and check"
        " the environment by counterpoint.check_env.",
    )


def interrupted(case: Case) -> Finding | None:
    """Nobody trains the run, and it is not finished."""
    if case.finished or case.running or case.diverged:
        return None
    done = int(max(trend.finite(case.rows, "episode"), default=0))
    return Finding(
        "interrupted",
        "The run ended before its time, and no process trains it.",
        f"It has reports of {done} of {case.get('num_episodes')} episodes.",
        f"Go on: counterpoint resume {case.run.path}.",
    )


class Cause(NamedTuple):
    """A cause and the names of those that it makes superfluous."""

    look: Callable[[Case], Finding | None]
    explains: Iterable[str] = ()


ALL: tuple[str, ...] = ("",)
_SYMPTOMS = ("entropy_gone", "mute_speaker", "ignores_observation", "collapsed", "stalled")
_NETWORKS = ("dead_units", "runaway_q", "at_the_bounds", *_SYMPTOMS)
CAUSES: dict[str, Cause] = {
    "diverged": Cause(diverged, ALL),
    "unlucky_seed": Cause(unlucky_seed, ALL),
    "no_reward": Cause(no_reward, ALL),
    "too_little_data": Cause(too_little_data, ("large_steps", *_NETWORKS)),
    "reward_unit": Cause(reward_unit, ("large_steps", *_NETWORKS)),
    "observation_unit": Cause(observation_unit, ("large_steps", *_NETWORKS)),
    "forgetting": Cause(forgetting, ("large_steps", *_NETWORKS)),
    "large_steps": Cause(large_steps, _NETWORKS),
    "dead_units": Cause(dead_units, ("at_the_bounds", *_SYMPTOMS)),
    "runaway_q": Cause(runaway_q, ("at_the_bounds", *_SYMPTOMS)),
    "at_the_bounds": Cause(at_the_bounds, _SYMPTOMS),
    "mute_speaker": Cause(mute_speaker, ("entropy_gone", "ignores_observation", "collapsed", "stalled")),
    "entropy_gone": Cause(entropy_gone, ("ignores_observation", "collapsed", "stalled")),
    "ignores_observation": Cause(ignores_observation, ("collapsed", "stalled")),
    "collapsed": Cause(collapsed, ("stalled",)),
    "stalled": Cause(stalled),
    "interrupted": Cause(interrupted),
}
"""All causes, the likeliest explanation first."""


# --- What they look at.


def step_ratio(case: Case) -> float:
    """Returns Adam's step relative to the standard deviation of an initial weight of a hidden layer, √(2 / width)."""
    return float(case.get("lr", 0.0)) * math.sqrt(case.get("num_units", 64) / 2)


def _smaller_lr(case: Case) -> float:
    """Returns a learning rate to try instead."""
    good = _good_lr(case)
    return float(_round(min(good, float(case.get("lr", good)) / 3)))


def _good_lr(case: Case) -> float:
    """Returns the learning rate that suits the width of the networks."""
    return float(_round(GOOD_STEP / math.sqrt(case.get("num_units", 64) / 2)))


def _round(number: float, digits: int = 1) -> int | float:
    """Returns a number with few digits."""
    rounded = float(f"{number:.{digits - 1}e}")
    return int(rounded) if rounded >= 10 else rounded


def _resume(case: Case, option: str, value: int | float) -> str:
    return f"counterpoint resume {case.run.path} {option} {value if isinstance(value, int) else f'{value:g}'}"


def _explore(case: Case) -> str:
    """Returns options with which the algorithm explores more."""
    for name in ("entropy_start", "logit_cost", "noise_start", "discrete_entropy"):
        if name in case.settings:
            value = max(
                3 * float(case.get(name)), {"entropy_start": 0.03, "logit_cost": 1e-2, "noise_start": 0.3}.get(name, 0.3)
            )
            end = f" {flag('entropy_end')} {_round(value / 3):g}" if name == "entropy_start" else ""
            uniform = " --epsilon-start 0.5" if case.get("epsilon_start", 1.0) < 0.1 else ""
            return f"{flag(name)} {_round(value):g}{end}{uniform}"
    return "more exploration"


def _columns(case: Case, prefix: str) -> list[str]:
    """Returns the columns of metrics that begin with a prefix."""
    return [name for name in (case.rows[-1] if case.rows else ()) if name.startswith(prefix)]


def _losses(case: Case) -> list[str]:
    return [name for prefix in ("critic_loss/", "actor_loss/", "q/", "value/") for name in _columns(case, prefix)]


def _broke(case: Case, name: str) -> bool:
    """Returns whether a column was finite once and is NaN at the last report; before the first update all losses are NaN."""
    values = trend.column(case.rows, name)
    return bool(np.isfinite(values).any() and np.isnan(values[-1]))


def _last(case: Case, name: str) -> float | None:
    """Returns the largest last value of a metric over agents."""
    values = [found[-1] for column in _columns(case, f"{name}/") if (found := trend.finite(case.rows, column)).size]
    return float(max(values)) if values else None


def _last_return(rows: trend.Rows) -> float:
    curves = trend.returns(rows, "eval/team/") or trend.returns(rows)
    return float(np.mean([values[-1] for values in curves.values()])) if curves else math.nan


def _length(case: Case) -> float:
    """Returns the mean length of an episode."""
    lengths = trend.finite(case.rows, "length")
    return float(lengths.mean()) if lengths.size else float(case.get("max_episode_len", 1) or 1)


def _varied_returns(case: Case) -> bool:
    """Returns whether the reports differ in what an agent earns per step."""
    length = np.maximum(trend.column(case.rows, "length"), 1e-9)
    pay = [trend.column(case.rows, name) / length for name in _columns(case, "return/")]
    return any(np.nanmax(each) - np.nanmin(each) > 1e-5 * (1e-9 + np.nanmax(np.abs(each))) for each in pay)


def _reward_sizes(case: Case) -> tuple[float, float]:
    """Returns the mean and the largest absolute reward of a step: as played, or else a guess from the reports."""
    if case.agents:
        return max(agent.reward for agent in case.agents), max(agent.largest for agent in case.agents)
    length = np.maximum(trend.column(case.rows, "length"), 1.0)
    pay = [np.abs(trend.column(case.rows, name)) / length for name in _columns(case, "return/")]
    known = [float(np.nanmax(each)) for each in pay if np.isfinite(each).any()]
    mean = max(known, default=0.0)
    return mean, mean * float(_length(case))  # one step may have paid it all


def _worst_layer(agents: Sequence[Agent]) -> tuple[str, float] | None:
    """Returns the agent with the fewest active units in a layer and their share, if it passes hardly anything on."""
    layers = [(agent.name, min(agent.alive)) for agent in agents if agent.alive]
    worst = min(layers, key=lambda each: each[1], default=None)
    return worst if worst and worst[1] <= DEAD else None


def _swings(case: Case) -> str:
    """Returns how the evaluated return swings from report to report, far beyond the noise of evaluation; empty if not."""
    curves = trend.returns(case.rows, "eval/team/")
    episodes = case.get("eval_episodes", 0)
    for team, values in curves.items():
        progress, late = case.teams.get(team), values[len(values) // 2 :]
        if progress is None or len(late) < 5 or not episodes:
            continue
        steps = np.diff(late)
        turns = np.sum(np.sign(steps[1:]) != np.sign(steps[:-1]))
        noise = progress.spread / math.sqrt(episodes)
        if np.std(steps) / math.sqrt(2) > 3 * noise and turns >= (len(steps) - 1) / 3:
            return f"greedy returns swing between {late.min():.3g} and {late.max():.3g} from report to report"
    return ""


def _fall(case: Case) -> str:
    """Returns how far the return fell from its best, if it did."""
    lost = next((team for team in case.teams.values() if team.lost), None)
    if lost is None:
        return ""
    return (
        f"; its best policy earns {lost.best:.3g} per episode, its last {lost.last:.3g}, an untrained one {lost.untrained:.3g}"
    )
