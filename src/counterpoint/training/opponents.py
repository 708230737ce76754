"""Opponents that do not learn: frozen teams of other runs, of exports and of Python files, and the run's own past.

A run that is trained against frozen teams keeps copies of them in its folder, `opponents/TEAM`: it resumes and loads even if
the other run has trained on or is gone.
"""

import inspect
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from counterpoint import config as configs
from counterpoint.algos.base import Actors, Algorithm, Replay
from counterpoint.algos.ensemble import of_agents, sizes_of, with_ensemble
from counterpoint.algos.league import League, with_league
from counterpoint.algos.onpolicy import Network, forward
from counterpoint.coded.controller import DECODE_ERROR, require_distributable
from counterpoint.config import Config
from counterpoint.core import numpy_policy, prng
from counterpoint.core.actions import heads_of, masked, relaxed, sampled
from counterpoint.core.errors import UsageError
from counterpoint.core.loading import first_line, is_address, load_object
from counterpoint.core.nets import Gru, Layer, Norm, Params
from counterpoint.core.spaces import Box, Discrete, Spec
from counterpoint.core.trees import names_of
from counterpoint.core.types import Environment, Key
from counterpoint.envs.against import Against, TeamPolicy, part_of
from counterpoint.runs import Run, history, open_run
from counterpoint.runs.folder import find, write_config


class Source(NamedTuple):
    """Where a frozen team comes from."""

    place: str
    """A run's folder, an exported .npz file, or the address of a function."""
    at: str | int = "last"
    seed_index: int = 0

    @property
    def kind(self) -> str:
        """Returns "export", "script" or "run"; refuses exports in other formats than NumPy's."""
        path = Path(self.place).expanduser()
        if path.suffix == ".npz" or (path / "team.npz").exists():
            return "export"
        other = any(path.suffix == suffix or (path / f"team{suffix}").exists() for suffix in (".onnx", ".safetensors"))
        if other and not (find(self.place) / "config.json").exists():
            raise UsageError(
                f"{self.place} is not a NumPy export, and no other export can be an opponent: write one with"
                " `counterpoint export --format numpy` and give its team.npz."
            )
        return "script" if is_address(self.place) and not (path / "config.json").exists() else "run"


def source_of(text: str) -> Source:
    """Returns the source that RUN, RUN@best, RUN@12000, RUN#2 (the run's third seed) or another place names."""
    match = re.fullmatch(r"(?s)(.+?)(?:@(best|last|\d+))?(?:#(\d+))?", text)
    if not match:
        raise UsageError(f"{text!r} names no opponent: give a run, an exported team.npz or file.py:function.")
    at = match[2] or "last"
    return Source(match[1], int(at) if at.isdigit() else at, int(match[3] or 0))


def frozen_teams(config: Config) -> dict[str, str]:
    """Returns what --freeze says: the source of each frozen team, by the team's name."""
    found: dict[str, str] = {}
    for word in config.opponents.freeze:
        team, sign, source = word.partition("=")
        if not sign or not team or not source:
            raise UsageError(f"--freeze {word} must have the form TEAM=RUN, such as adversary=runs/tag-1@best.")
        if team in found:
            raise UsageError(f"--freeze names the team {team} twice: leave one out.")
        found[team] = source
    return found


def learning_spec(config: Config, spec: Spec) -> Spec:
    """Returns the spec of the agents that learn in a run, given that of its whole environment."""
    frozen = frozen_teams(config)
    if unknown := sorted(frozen.keys() - set(spec.teams)):
        raise UsageError(f"--freeze {unknown[0]}=… names no team here: the teams are {', '.join(sorted(set(spec.teams)))}.")
    learning = [agent for agent, team in zip(spec.agents, spec.teams, strict=True) if team not in frozen]
    if not learning:
        raise UsageError(f"--freeze {' '.join(config.opponents.freeze)} leaves no team to learn: leave one of them out.")
    return part_of(spec, learning)


def open_env(config: Config, home: Path | None = None, trust: bool = False) -> Environment:
    """Opens the environment of a run with the frozen teams inside it; `home` is the run's folder, if it exists already.

    A frozen run that names code and was not made by this user on this machine needs `trust`.
    """
    env = config.world.build()
    frozen = frozen_teams(config)
    if not frozen:
        return env
    if env.compiled is None:
        raise UsageError(f"--freeze needs a compiled environment, and Python steps {env.name}: leave out --freeze.")
    learning_spec(config, env.spec)
    teams = []
    for team, source in frozen.items():
        copy = home / "opponents" / team if home else None
        kept = copy is not None and copy.exists()
        teams.append(load_team(Source(str(copy)) if kept else source_of(source), env, team, trust))
    against: Any = Against(env.compiled, teams)
    return against


def algorithm_of(config: Config, env: Environment, axis: str | None = None) -> Algorithm:
    """Returns the algorithm that the settings describe, bound to the environment's agents."""
    return algorithm_for(config, env.spec, axis)


def algorithm_for(config: Config, spec: Spec, axis: str | None = None) -> Algorithm:
    """Returns the algorithm that the settings describe, bound to these agents."""
    o, parts = config.opponents, (config.learning, spec, config.sees(spec), axis)
    if o.ensemble > 1:
        sizes = sizes_of(spec, o.ensemble, o.ensemble_teams)
        return with_ensemble(config.entry.make(*parts, ensemble=of_agents(spec, sizes)), spec, sizes)
    algo = config.entry.make(*parts)
    if config.distribution.learners:
        require_distributable(algo)
        algo = algo._replace(metrics=(*algo.metrics, DECODE_ERROR))
    if league := o.league:
        algo = with_league(algo, spec, League(league, max(o.league_every, 1), o.league_share, o.league_draw), axis)
    return algo


def check_ensemble(config: Config, env: Environment) -> None:
    """Refuses settings that an ensemble of policies cannot be trained with."""
    o, learning = config.opponents, config.learning
    if o.ensemble < 2:
        if o.ensemble_teams:
            raise UsageError(f"--ensemble-teams {' '.join(o.ensemble_teams)} says whose ensemble: choose --ensemble as well.")
        return
    what = f"--ensemble {o.ensemble}"
    if not config.entry.ensembles:
        raise UsageError(
            f"{what} needs actors like MADDPG's, and {config.entry.name} has others: choose maddpg, ddpg or matd3."
        )
    kind = cast(Replay, config.entry.memory(learning))
    if env.compiled is None:
        raise UsageError(f"{what} needs a compiled environment, and Python steps {env.name}: leave it out.")
    shares = learning.share != "none"  # its arrays are those of sets, not of agents
    averages = learning.norm == "batch"  # of what each sub-policy sees, where critics average over all
    unusual = kind.per_agent or kind.priority or kind.newest or kind.sequence or shares or averages
    if unusual or o.league or config.distribution.learners:
        raise UsageError(
            f"{what} excludes --minibatch per-agent, --replay prioritised, --infer-policies, --recurrent, --share,"
            " --norm batch, --league and --learners: leave them out."
        )


def check_league(config: Config, env: Environment) -> None:
    """Refuses a league where there is none to play in, or an algorithm that cannot learn from it."""
    league = config.opponents.league
    if not league:
        return
    if len(set(env.spec.teams)) < 2:
        raise UsageError(f"--league {league} needs two learning teams, and {env.name} has one: leave it out.")
    memory = config.entry.memory(config.learning)
    if env.compiled is None:
        raise UsageError(f"--league {league} needs a compiled environment, and Python steps {env.name}: leave it out.")
    others: dict[str, Any] = {"learners": config.distribution.learners}
    if isinstance(memory, Replay):
        others |= {"recurrent": memory.sequence, "infer-policies": memory.newest}
    for name, chosen in others.items():
        if chosen:
            raise UsageError(f"--league {league} and --{name} exclude each other: choose one of them.")


def actors_of(config: Config, spec: Spec) -> Callable[[Any], Actors | None]:
    """Returns the function that gives a run's policy as plain networks."""
    entry, learning, league = config.entry, config.learning, config.opponents.league
    if config.opponents.ensemble > 1:  # plain networks are those of one sub-policy: the first, unless another was chosen
        return lambda policy: entry.actors(learning, spec, jax.tree.map(lambda leaf: leaf[:, 0], policy))
    return lambda policy: entry.actors(learning, spec, policy.current if league else policy)


# --- One team.


def load_team(source: Source, env: Environment, team: str, trust: bool = False) -> TeamPolicy:
    """Returns a team's policy for an environment, as pure functions; `trust` is that of `settings_of`."""
    agents = tuple(agent for agent, own in zip(env.spec.agents, env.spec.teams, strict=True) if own == team)
    if not agents:
        raise UsageError(f"there is no team {team} in {env.name}: its teams are {', '.join(sorted(set(env.spec.teams)))}.")
    if source.kind == "script":
        return scripted(load_object(source.place, "the policy"), env.spec, agents, source.place)
    if source.kind == "export":
        return exported(Path(source.place), env.spec, agents)
    run = open_run(source.place)
    config = settings_of(run, trust)
    world = config.world.build()
    own, here = (getattr(place.compiled, "flavour", "") for place in (world, env))
    if own and here and own != here:
        raise UsageError(f"{run.path} was trained with --flavour {own}, and here it is {here}, in which moves differ: use one.")
    spec = learning_spec(config, world.spec)
    algo, parameters = load_parameters(run, source, config, spec)
    greedy = algo.greedy

    def act(parameters: Any, carry: Any, obs: Array, key: Key, legal: Any) -> tuple[Array, Any]:
        del key
        lead = jax.tree.map(lambda leaf: leaf[None], (carry, obs, legal))
        action, carry = greedy(parameters, *lead)
        return action[0], jax.tree.map(lambda leaf: leaf[0], carry)

    facts = configs.to_dict(config)
    kind = json.dumps([facts["algorithm"], facts["learning"], facts["opponents"], repr(spec)], default=str)
    return in_layout(TeamPolicy(agents, algo.begin, act, parameters, kind), spec, env.spec, str(run.path))


def settings_of(run: Run, trust: bool = False) -> Config:
    """Returns the settings of a run that plays; refuses one that names code unless the user trusts it or made it here."""
    run.require_trust(trusted=trust)  # before the settings, which load an algorithm of one's own
    return configs.from_dict(run.config)


def load_parameters(run: Run, source: Source, config: Config, spec: Spec) -> tuple[Algorithm, Any]:
    """Returns the algorithm and the policy of a run, of which `spec` learned, at a moment of its training."""
    if not 0 <= source.seed_index < config.training.num_seeds:
        raise UsageError(f"{run.path} has {config.training.num_seeds} seeds, and #{source.seed_index} is none of them.")
    algo = algorithm_for(config, spec)
    tensors, _ = history.load_at(run, source.at, source.seed_index)
    shapes = jax.eval_shape(lambda: algo.policy(algo.init(prng.key(0))))
    names, leaves = names_of(shapes), jax.tree.leaves(shapes)
    wanted = {name: leaf.shape for name, leaf in zip(names, leaves, strict=True)}
    if {name: tensor.shape[1:] for name, tensor in tensors.items()} != wanted:
        raise UsageError(f"the policy of {run.path} does not fit its config.json: restore both, or train anew.")
    chosen = [jnp.asarray(tensors[name][source.seed_index]) for name in names]
    return algo, jax.tree.unflatten(jax.tree.structure(shapes), chosen)


def perceptrons_of(source: Source, env: Environment, team: str, trust: bool = False) -> Params | None:
    """Returns the networks [M, …] of a team of a run, whose outputs are log-probabilities, or None if it has no such ones.

    Scripts, exports, recurrent and normalised networks, and networks of the user's own are something else.
    """
    if source.kind != "run":
        return None
    run = open_run(source.place)
    config = settings_of(run, trust)
    own = learning_spec(config, config.world.build().spec)
    found = actors_of(config, own)(load_parameters(run, source, config, own)[1])
    if found is None or not isinstance(found.layers, tuple) or isinstance(found.layers, Network):
        return None
    *hidden, last = found.layers
    widths = {layer.weight.shape[-1] for layer in hidden}
    if len(widths) != 1 or any(layer.norm is not None for layer in found.layers):
        return None
    rules, spec = found.rules, part_of(env.spec, [a for a, t in zip(env.spec.agents, env.spec.teams, strict=True) if t == team])
    soft = rules.get("world_action") == "soft" and all(isinstance(space, Discrete) for space in spec.action_spaces)
    scale, a = 1 / rules.get("temperature", 1.0) if soft else 1.0, spec.act_size
    first = hidden[0]._replace(weight=hidden[0].weight[:, : spec.obs_size])
    last = Layer(scale * last.weight[..., :a], scale * last.bias[..., :a])
    rows = np.array([own.agents.index(agent) for agent in spec.agents])
    return jax.tree.map(lambda leaf: leaf[rows], (first, *hidden[1:], last))


def in_layout(policy: TeamPolicy, own: Spec, spec: Spec, place: str) -> TeamPolicy:
    """Returns a policy over the agents of `own` as one over the agents of `spec`, matched by name."""
    for agent in policy.agents:
        if agent not in own.agents:
            raise UsageError(f"{place} has no policy for {agent}: its agents are {', '.join(own.agents)}.")
        theirs, ours = ((s.obs_sizes[s.agents.index(agent)], s.action_spaces[s.agents.index(agent)]) for s in (own, spec))
        if theirs != ours:
            raise UsageError(
                f"{agent} of {place} observes {theirs[0]} numbers and acts in {theirs[1]}, and here it observes {ours[0]}"
                f" and acts in {ours[1]}: train it in the same environment."
            )
    rows = np.array([spec.agents.index(agent) if agent in spec.agents else 0 for agent in own.agents])
    known = np.array([agent in spec.agents for agent in own.agents])
    if rows.tolist() == list(range(spec.num_agents)) and own.agents == spec.agents:
        return policy

    def act(parameters: Any, carry: Any, obs: Array, key: Key, legal: Any) -> tuple[Array, Any]:
        seen = fitted(obs[rows], own.obs_size) * jnp.asarray(known[:, None] & own.obs_mask, obs.dtype)
        allowed = None if legal is None else fitted(legal[rows], own.act_size)
        action, carry = policy.act(parameters, carry, seen, key, allowed)
        full = jnp.zeros(spec.act_mask.shape, action.dtype)
        return full.at[rows[known]].set(fitted(action[np.flatnonzero(known)], spec.act_size)), carry

    return policy._replace(act=act, kind=policy.kind and f"{policy.kind} for {spec}")


def fitted(rows: Float[Array, "N I"], size: int) -> Float[Array, "N H"]:
    """Returns rows cut or padded with zeros to a size."""
    return jnp.pad(rows[:, :size], ((0, 0), (0, max(0, size - rows.shape[1]))))


def exported(path: Path, spec: Spec, agents: Sequence[str]) -> TeamPolicy:
    """Returns the policy in a .npz file of an export, or in the folder of one."""
    file, found = open_export(path)
    team, rules = found.team, found.team.rules
    spaces = tuple(Discrete(s.heads) if s.heads else Box(s.size, _bound(s.low), _bound(s.high)) for s in team.spaces)
    names = tuple(found.agents)
    own = Spec(names, names, ("",) * len(names), tuple(found.obs_sizes), spaces)
    heads, uniform = heads_of(own), rules.noise == "uniform"
    if uniform:
        raise UsageError(f"{file} plays at random: export a trained team instead.")

    network = network_of(numpy_policy.without_deviations(team))  # it plays greedily
    num_hidden = numpy_policy.num_hidden(team.layers)

    def begin(key: Key) -> Any:
        return jnp.zeros((own.num_agents, num_hidden)) if num_hidden else ()

    def act(parameters: Any, carry: Any, obs: Array, key: Key, legal: Any) -> tuple[Array, Any]:
        del key
        outputs, carry = forward(None, parameters, carry, obs)
        outputs = masked(heads, outputs, legal)
        if rules.world_action == "soft":
            return relaxed(heads, outputs, jnp.zeros_like(outputs), rules.temperature), carry
        return sampled(heads, outputs, jnp.zeros_like(outputs)), carry

    return in_layout(TeamPolicy(tuple(agents), begin, act, network), own, spec, str(file))


def network_of(layers: Sequence[numpy_policy.Layer]) -> Network:
    """Returns exported layers, stacked over agents, as a perceptron or as one with a recurrent unit."""

    def plain(layer: numpy_policy.Layer) -> Layer:
        norm = (None if part is None else jnp.asarray(part[:, 0]) for part in (layer.scale, layer.mean, layer.variance))
        return Layer(
            jnp.asarray(layer.weight),
            jnp.asarray(layer.bias[:, 0]),
            None if layer.scale is None else Norm(*norm),  # pyright: ignore[reportArgumentType]
        )

    for depth, layer in enumerate(layers):
        if layer.state_weight is not None and layer.state_bias is not None:
            state = Layer(jnp.asarray(layer.state_weight), jnp.asarray(layer.state_bias[:, 0]))
            body, head = (tuple(map(plain, part)) for part in (layers[:depth], layers[depth + 1 :]))
            return Network(body, Gru(plain(layer), state), head)
    return Network(tuple(map(plain, layers)))


def open_export(path: Path) -> tuple[Path, numpy_policy.Policy]:
    """Returns the .npz file of an export, given it or its folder, and the policy in it."""
    path = path.expanduser()
    file = path / "team.npz" if path.is_dir() else path
    if not file.exists():
        raise UsageError(f"{file} does not exist: give the .npz file of a NumPy export.")
    return file, numpy_policy.Policy.load(file)


def _bound(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value


def scripted(function: Any, spec: Spec, agents: Sequence[str], place: str) -> TeamPolicy:
    """Returns the policy of a function in jax.numpy: it maps {agent: observation} to {agent: action}.

    An action is a vector in the environment's own range (one-hot for discrete agents), or the number of a choice for an agent
    with a single choice. A parameter named `key` receives a random key.
    """
    if not callable(function):
        raise UsageError(f"{place} is a {type(function).__name__}: a scripted policy is a function of observations.")
    takes_key = "key" in inspect.signature(function).parameters
    each = {agent: spec.agents.index(agent) for agent in agents}

    def act(parameters: Any, carry: Any, obs: Array, key: Key, legal: Any) -> tuple[Array, Any]:
        del parameters, legal
        seen = {agent: obs[i, : spec.obs_sizes[i]] for agent, i in each.items()}
        answer = function(seen, **({"key": key} if takes_key else {}))
        action = jnp.zeros(spec.act_mask.shape)
        for agent, i in each.items():
            if not isinstance(answer, dict) or agent not in answer:
                raise UsageError(f"{place} returns no action for {agent}: return a dict with one for each of its agents.")
            action = action.at[i, : spec.act_sizes[i]].set(_vector(spec.action_spaces[i], answer[agent], agent, place))
        return action, carry

    try:
        jax.eval_shape(lambda: act((), (), jnp.zeros(spec.obs_mask.shape), prng.key(0), None))  # a mistake is better found now
    except UsageError:
        raise
    except Exception as error:
        what = f"{place} cannot act for {', '.join(agents)} ({type(error).__name__}: {first_line(error)})"
        raise UsageError(f"{what}: mend it, or choose the team that it is written for.") from error
    return TeamPolicy(tuple(agents), lambda key: (), act)


def _vector(space: Discrete | Box, action: Any, agent: str, place: str) -> Float[Array, " A"]:
    """Returns a scripted action as algorithms give it: continuous ones in [−1, 1]."""
    action = jnp.asarray(action)
    if action.ndim == 0 and isinstance(space, Discrete) and len(space.heads) == 1:
        return jax.nn.one_hot(action, space.size)
    if action.shape != (space.size,):
        raise UsageError(f"{place} returns an action of shape {action.shape} for {agent}: its shape must be ({space.size},).")
    if isinstance(space, Discrete):
        return action.astype(jnp.float32)
    return (action - space.middle.astype(np.float32)) / space.half_width.astype(np.float32)


# --- Several teams at once.


def joint(spec: Spec, policies: Sequence[TeamPolicy]) -> Algorithm:
    """Returns the policies of several teams as one algorithm that does not learn; its policy is a tuple of their parameters."""

    def greedy(parameters: Any, carry: Any, obs: Array, legal: Any = None) -> tuple[Array, Any]:
        def one(carry: Any, obs: Array, legal: Any) -> tuple[Array, Any]:
            count, *carries = carry
            action, after = jnp.zeros(spec.act_mask.shape), []
            for i, policy in enumerate(policies):
                key = jax.random.fold_in(prng.key(i), count)
                theirs, own = policy.act(parameters[i], carries[i], obs, jax.random.fold_in(key, _bits(obs)), legal)
                action = jnp.where(jnp.asarray(policy.rows(spec))[:, None], theirs, action)
                after.append(own)
            return action, (count + 1, *after)

        return jax.vmap(one)(carry, obs, legal)

    def begin(key: Key) -> Any:
        count = jax.random.bits(key, (), jnp.uint32) >> 1
        return (count, *(policy.begin(jax.random.fold_in(key, i)) for i, policy in enumerate(policies)))

    def act(policy: Any, carry: Any, obs: Array, key: Key, step: Array, legal: Any = None) -> tuple[Array, Any, tuple[()]]:
        return *greedy(policy, carry, obs, legal), ()

    return Algorithm(
        init=lambda key: tuple(policy.parameters for policy in policies),
        policy=lambda agents: agents,
        begin=begin,
        act=act,
        greedy=greedy,
        update=lambda agents, batch, key: (agents, {}),
        metrics=(),
    )


def _bits(obs: Array) -> Array:
    """Returns a number that differs between observations, so that parallel environments draw different noise."""
    return jnp.sum(jax.lax.bitcast_convert_type(obs.astype(jnp.float32), jnp.uint32).ravel() * np.uint32(2654435761))


# --- The run's own copies.


def keep(run: Run, config: Config) -> None:
    """Copies the frozen teams of other runs and of exports into the run's folder."""
    for team, text in frozen_teams(config).items():
        source, folder = source_of(text), run.path / "opponents" / team
        if source.kind == "script":
            continue
        folder.mkdir(parents=True, exist_ok=True)
        if source.kind == "export":
            path = Path(source.place).expanduser()
            shutil.copyfile(path / "team.npz" if path.is_dir() else path, folder / "team.npz")
            continue
        other = open_run(source.place)
        tensors, about = history.load_at(other, source.at, source.seed_index)
        one = {name: tensor[source.seed_index : source.seed_index + 1] for name, tensor in tensors.items()}
        Run(folder).save_policy(one, {**about, "copied_from": text})
        facts = other.config
        facts["training"] |= {"num_seeds": 1, "seed": facts["training"]["seed"] + source.seed_index}
        write_config(folder, facts)


def absolute(words: Sequence[str]) -> tuple[str, ...]:
    """Returns the words of --freeze with every file and run by its absolute place."""
    found = []
    for word in words:
        team, sign, text = word.partition("=")
        if not (sign and text):  # refused later, in a sentence
            found.append(word)
            continue
        place = source_of(text).place
        path = Path(place).expanduser()
        file, colon, name = place.rpartition(":")
        if not path.exists() and (Path("runs") / place / "config.json").exists():
            path = Path("runs") / place
        if file.endswith(".py"):
            new = f"{Path(file).expanduser().resolve()}{colon}{name}"
        else:
            new = str(path.resolve()) if path.exists() else place
        found.append(f"{team}{sign}{new}{text[len(place) :]}")
    return tuple(found)
