"""A trained team: maps observations by agent name to actions by agent name."""

import copy
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from counterpoint.algos.base import Actors, Algorithm
from counterpoint.algos.ensemble import only_member, sizes_of
from counterpoint.core import prng
from counterpoint.core.actions import to_world
from counterpoint.core.errors import UsageError
from counterpoint.core.picture import Picture
from counterpoint.core.spaces import Box, Discrete
from counterpoint.core.trees import names_of
from counterpoint.core.types import Environment
from counterpoint.policies.random import random_actors, random_algorithm
from counterpoint.runs import Run, display, history, open_run
from counterpoint.runs.tables import html_table
from counterpoint.training import recorded, sources
from counterpoint.training.evaluate import LATE, Episodes, evaluator, pictures, save_film
from counterpoint.training.opponents import actors_of, algorithm_of, open_env
from counterpoint.viz import render

MOST_ROWS = 12
"""Rows of the table of agents in a notebook, at most."""


class Policy:
    """The team of one seed. Its only state is what acting remembers within an episode: call `reset` when one begins."""

    def __init__(
        self,
        env: Environment,
        algo: Algorithm,
        parameters: Any,
        seed: int = 0,
        actors: Callable[[Any], Actors | None] = lambda policy: None,
    ) -> None:
        self.env, self.algo, self.parameters, self.actors = env, algo, parameters, actors
        self.about: dict[str, Any] = {}
        """What is known of a policy that was loaded: `episodes` and `step` at which it was saved, and its `seed_index`."""
        self.run: Run | None = None
        """The run that it was loaded from."""
        self._key = prng.key(seed)
        self._calls = 0
        self._greedy = jax.jit(algo.greedy)
        self._explore = jax.jit(
            lambda policy, carry, obs, key, legal: algo.act(policy, carry, obs, key, jnp.asarray(LATE), legal)
        )
        self._evaluate = evaluator(env, algo, actors)
        self.reset()

    def __repr__(self) -> str:
        trained = f", trained for {self.about['episodes']} episodes" if "episodes" in self.about else ""
        return f"Policy({self.env.name}: {', '.join(self.env.spec.agents)}{trained})"

    def _repr_html_(self) -> str:
        """Returns the policy for a notebook: its agents, the learning curve of its run, and a film.

        The film is that of the run if this is the policy it ended with; otherwise an episode is played, in a compiled world.
        """
        spec, episodes = self.env.spec, self.about.get("episodes")
        sizes = zip(spec.agents, spec.teams, spec.obs_sizes, spec.action_spaces, strict=True)
        rows = [[agent, team, size, _words(space)] for agent, team, size, space in sizes]
        if len(rows) > MOST_ROWS:
            rows = [*rows[: MOST_ROWS - 1], [f"… {len(rows) - MOST_ROWS + 1} more", "", None, ""]]
        table = html_table(["agent", "team", "observation", "action"], rows)
        curve = display.image(self.run.curve_path, "learning curve") if self.run else ""
        if self.run and self.about.get("finished") and self.about["seed_index"] == 0:
            film = display.image(self.run.gif_path, "film of the trained team")
        else:
            film = self._film_html() if self.env.compiled is not None else ""
        about = [self.env.name, f"trained for {episodes} episodes" if episodes is not None else ""]
        return display.panel("Policy", about, [part for part in (table, curve, film) if part])

    def _film_html(self) -> str:
        """Returns a film of one greedy episode, or nothing if the environment cannot draw."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "film.gif"
            self.save_film(path, episodes=1)
            return display.image(path, "film of one episode")

    def reset(self) -> None:
        """Forgets the episode."""
        self._calls += 1
        begin = self.algo.begin(jax.random.fold_in(self._key, self._calls))
        self._carry = jax.tree.map(lambda leaf: leaf[None], begin)

    def with_parameters(self, parameters: Any, about: dict[str, Any]) -> "Policy":
        """Returns the policy with other parameters, sharing what is compiled."""
        other = copy.copy(self)
        other.parameters, other.about = parameters, about
        other.reset()
        return other

    def act(self, obs: dict[str, Any], greedy: bool = True, vectors: bool = False, legal: dict[str, Any] | None = None) -> Any:
        """Returns each agent's native action: an integer if its actions are discrete, an array if they are continuous.

        Several heads make one integer, the first head counting fastest (as in mpe2: move + 5·word). With `vectors`, each action
        is the array that the environment was given in training. `legal` holds action masks by agent, if there are any.
        """
        spec = self.env.spec
        stacked = np.zeros((1, spec.num_agents, spec.obs_size), np.float32)
        unknown = set(obs) - set(spec.agents)
        if unknown:
            raise UsageError(f"there is no agent {min(unknown)!r}; the agents are {', '.join(spec.agents)}.")
        for i, (name, size) in enumerate(zip(spec.agents, spec.obs_sizes, strict=True)):
            if name in obs:
                vector = self.env.encode(i, obs[name])
                if vector.shape != (size,):
                    raise UsageError(f"the observation of {name} must have shape ({size},), not {vector.shape}.")
                stacked[0, i, :size] = vector
        masks = None
        if legal is not None:
            masks = np.ones((1, *spec.act_mask.shape), bool)
            for name, mask in legal.items():
                masks[0, spec.agents.index(name), : len(mask)] = np.asarray(mask, bool)
        if greedy:
            action, self._carry = self._greedy(self.parameters, self._carry, stacked, masks)
        else:
            self._calls += 1
            key = jax.random.fold_in(self._key, self._calls)
            action, self._carry, _ = self._explore(self.parameters, self._carry, stacked, key, masks)
        scaled = np.asarray(to_world(spec, action))[0]
        own = {name: scaled[i, : spec.act_sizes[i]] for i, name in enumerate(spec.agents) if name in obs}
        return own if vectors else {name: self.env.decode(spec.agents.index(name), vector) for name, vector in own.items()}

    def evaluate(self, episodes: int, seed: int = 0, explore: bool = False, record: bool = False) -> Episodes:
        """Plays that many whole episodes, greedily or as training explores; `record` keeps every state or image."""
        return self._evaluate(self.parameters, episodes, seed, explore, record)

    def film(self, episodes: int = 3, seed: int = 0, explore: bool = False) -> list[list[Picture]]:
        """Returns pictures of whole episodes of a compiled environment."""
        return pictures(self.env, self._evaluate(self.parameters, episodes, seed, explore, record=True))

    def frames(self, episodes: int = 3, seed: int = 0, explore: bool = False) -> list[list[np.ndarray]]:
        """Returns images [H, W, 3] of whole episodes; none if the environment cannot draw."""
        played = self._evaluate(self.parameters, episodes, seed, explore, record=True)
        if played.frames is not None:
            return played.frames
        films = pictures(self.env, played)
        return [[render.rgb(picture, past=film[:t]) for t, picture in enumerate(film)] for film in films]

    def save_film(self, path: str | Path, episodes: int = 3, seed: int = 0, explore: bool = False) -> bool:
        """Writes a film of whole episodes; returns False, and writes nothing, if the environment cannot draw."""
        return save_film(self.env, self._evaluate(self.parameters, episodes, seed, explore, record=True), path)


def load(
    run: str | Path | Run,
    seed_index: int = 0,
    at: str | int = "last",
    env: str = "",
    trust: bool = False,
    member: int | None = None,
) -> Policy:
    """Returns a policy of a run (of its first seed by default).

    `at` selects the last one, the "best" by evaluation, or the one kept nearest to a number of episodes. `env` is the place of
    an environment of your own that has moved since. A run that names code and was not made by you on this machine needs
    `trust`, or the environment again. An ensemble draws a sub-policy for each episode unless `member` selects one.
    """
    run = run if isinstance(run, Run) else open_run(run)
    return _of_member(_load(run, seed_index, [at], env, trust)[0], run, member)


def _of_member(policy: Policy, run: Run, member: int | None) -> Policy:
    """Returns the policy of one member of an ensemble, or the whole one if none is chosen."""
    if member is None:
        return policy
    settings, spec = run.config.get("opponents", {}), policy.env.spec
    size = int(settings.get("ensemble", 1))
    if not 0 <= member < size:
        raise UsageError(f"{run.path} has {size} sub-policies, counted from 0, and {member} is none of them.")
    if size == 1:
        return policy
    of_team = dict(zip(dict.fromkeys(spec.teams), sizes_of(spec, size, settings["ensemble_teams"]), strict=True))
    chosen = only_member(policy.parameters, member, [of_team[team] for team in spec.teams])
    return policy.with_parameters(chosen, policy.about)


def load_history(
    run: str | Path | Run, seed_index: int = 0, env: str = "", trust: bool = False, member: int | None = None
) -> list[Policy]:
    """Returns every policy that a run kept along the way, the last one included, in the order of training."""
    run = run if isinstance(run, Run) else open_run(run)
    return [_of_member(policy, run, member) for policy in _load(run, seed_index, None, env, trust)]


def load_closed(
    run: Run,
    seed_index: int = 0,
    at: str | int = "last",
    env: str = "",
    trust: bool = False,
    member: int | None = None,
) -> Policy:
    """Returns a policy of a run without opening its environment, if the run describes it: the policy can act, not play."""
    return _of_member(_load(run, seed_index, [at], env, trust, closed=True)[0], run, member)


def _load(
    run: Run, seed_index: int, moments: Sequence[str | int] | None, env: str, trust: bool, closed: bool = False
) -> list[Policy]:
    """Returns the policies of these moments of a run, or of all that it kept; the environment is opened once for all, or not at
    all if `closed`."""
    described = recorded.read(run) if closed and not env else None
    config = sources.settings_of(run, env, trust, given=("env",) if described else ())
    if not config.world.env:
        described = None  # worlds of ours are data, and know more
    config = config if described else sources.located(config, run, env)
    run.require_seed(seed_index)
    kept = history.episodes_of(run) if moments is None else moments  # only now: a stranger's code is refused first
    found = [history.load_at(run, at, seed_index) for at in kept]
    world: Environment = described or open_env(config, run.path, trust)
    if world is not described:
        config.check(world)
    algo = algorithm_of(config, world)
    shapes = jax.eval_shape(lambda: algo.policy(algo.init(prng.key(0))))
    wanted = {name: leaf.shape for name, leaf in zip(names_of(shapes), jax.tree.leaves(shapes), strict=True)}
    first = Policy(world, algo, None, actors=actors_of(config, world.spec))
    first.run = run
    policies = []
    for at, (tensors, about) in zip(kept, found, strict=True):
        if {name: tensor.shape[1:] for name, tensor in tensors.items()} != wanted:
            what = "policy.safetensors" if at == "last" else f"the policy at {at}"
            raise UsageError(f"{what} of {run.path} does not fit its config.json: restore both, or train anew.")
        leaves = [jnp.asarray(tensors[name][seed_index]) for name in wanted]
        parameters = jax.tree.unflatten(jax.tree.structure(shapes), leaves)
        policies.append(first.with_parameters(parameters, about | {"seed_index": seed_index}))
    return policies


def _words(space: Discrete | Box) -> str:
    """Returns an action space in words."""
    if isinstance(space, Box):
        return f"{space.size} real number{'s' * (space.size > 1)}"
    return " and ".join(f"1 of {count}" for count in space.heads)


def random_team(env: Environment) -> Policy:
    """Returns a team that draws its actions uniformly, whether it is asked to explore or not."""
    return Policy(env, random_algorithm(env.spec), (), actors=lambda policy: random_actors(env.spec))


def film_history(policies: Sequence[Policy], path: str | Path, seed: int = 0, explore: bool = False) -> bool:
    """Films one episode of each policy, all with the same seed, titled with the episodes that it was trained for.

    Returns False, and writes nothing, if the environment cannot draw.
    """
    titles = [f"after {policy.about.get('episodes', 0)} episodes" for policy in policies]
    if policies[0].env.compiled is not None:
        films = [_titled(title, policy.film(1, seed, explore)) for title, policy in zip(titles, policies, strict=True)]
        if any(films):
            render.save([film for film in films if film], path)
        return any(films)
    shots = [policy.frames(1, seed, explore) for policy in policies]
    films = [[_stamped(title, frame) for frame in shot[0]] for title, shot in zip(titles, shots, strict=True) if shot]
    if any(films):
        render.save_frames(films, path)
    return any(films)


def _titled(title: str, films: list[list[Picture]]) -> list[Picture]:
    """Returns the pictures of one episode, their captions beginning with a title (two spaces end it)."""
    return [
        picture._replace(caption=f"{title}  {picture.caption.partition('  ')[2]}".rstrip())
        for film in films
        for picture in film
    ]


def _stamped(title: str, frame: np.ndarray) -> np.ndarray:
    """Returns an image with a strip above it that shows a title."""
    from PIL import Image, ImageDraw

    height, width = frame.shape[:2]
    page = Image.new("RGB", (width, height + 16), "white")
    page.paste(Image.fromarray(frame[..., :3]), (0, 16))
    ImageDraw.Draw(page).text((4, 2), title, fill="black")
    return np.asarray(page)
