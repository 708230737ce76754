"""Trained teams for other programs: ONNX, plain NumPy or safetensors, one file per agent and one for the team.

What was written is read back and run beside the policy itself before it counts: onnxruntime for ONNX, a Python process that
cannot import jax for NumPy. Only then does the folder appear, whole.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from counterpoint import __version__
from counterpoint import config as configs
from counterpoint.algos.base import Actors
from counterpoint.core import numpy_policy, prng
from counterpoint.core.actions import to_world
from counterpoint.core.errors import UsageError
from counterpoint.core.nets import gru, mlp
from counterpoint.policies.policy import Policy, load_closed
from counterpoint.runs import Run, open_run
from counterpoint.runs.files import digest_of_file, expanded, sealed
from counterpoint.training import recorded

FORMATS = ("onnx", "numpy", "safetensors")

TOLERANCE = 1e-4
"""How far outputs may differ from the policy's, in units of 1 + their size: float32 sums in another order."""
NUM_TRIALS = 128
"""Observations on which an export is compared."""
NUM_RECALLED = 3
"""Steps after which a recurrent policy is compared."""
MANIFEST = "export.json"


PER_AGENT = ("agents", "obs_sizes", "spaces", "integers", "joined")
"""The facts that have an entry for each agent."""


class Parts(NamedTuple):
    """What is exported: the actors, facts about them, and the name of each agent's file."""

    team: numpy_policy.Team
    about: dict[str, Any]
    stems: list[str]
    """File names of the agents, without ending."""

    def agent(self, i: int) -> tuple[numpy_policy.Team, dict[str, Any]]:
        """Returns one agent and the facts about it, in the form of a team of one."""
        about = self.about | {name: self.about[name][i : i + 1] for name in PER_AGENT}
        return numpy_policy.only(self.team, i, self.about["obs_sizes"][i]), about


class Answers(NamedTuple):
    """A policy's answers to each agent's trial observations: raw outputs, and actions in the environment's units, [B, size]."""

    outputs: list[np.ndarray]
    actions: list[np.ndarray]


def export(
    run: str | Path | Run,
    format: str = "onnx",
    out: str | Path = "",
    seed_index: int = 0,
    at: str | int = "last",
    env: str = "",
    trust: bool = False,
    member: int | None = None,
) -> Path:
    """Writes a policy of a run for use elsewhere and returns the folder (empty `out`: inside the run's own).

    `at`, `env`, `trust` and `member` are those of `counterpoint.load`; a run that describes its environment needs neither `env`
    nor `trust`, and of an ensemble the first sub-policy is exported by default.
    """
    if format not in FORMATS:
        raise UsageError(f"format must be one of {', '.join(FORMATS)}, not {format!r}.")
    if format == "onnx":
        for package in ("onnx", "onnxruntime"):
            _import(package)
    run = run if isinstance(run, Run) else open_run(run)
    folder = expanded(out) if out else run.path / "export" / format
    _check_free(folder)
    policy = load_closed(run, seed_index, at, env, trust, member)
    parts = parts_of(run, policy, seed_index)
    obs, expected = trials_of(run, policy, NUM_TRIALS)
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        draft.mkdir(parents=True)
        write, answer = {"onnx": (_write_onnx, _ask_onnx), "numpy": (_write_numpy, _ask_numpy)}.get(
            format, (_write_safetensors, _ask_safetensors)
        )
        write(draft, parts)
        apart = _compare(parts, expected, answer(draft, parts, obs))
        files = sorted(path.name for path in draft.iterdir())
        sums = {file: digest_of_file(draft / file) for file in files}
        facts = {"format": format, "files": files, "sums": sums, "largest_difference": apart, "about": parts.about}
        (draft / MANIFEST).write_text(json.dumps(sealed(facts), indent=2))
        _put(draft, folder)
    except OSError as error:
        raise UsageError(f"cannot write {folder} ({error.strerror or error}): choose another --out.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _import(package: str) -> Any:
    try:
        return import_module(package)
    except ModuleNotFoundError:
        raise UsageError(f"format onnx needs {package}, which is not installed: pip install 'counterpoint[export]'.") from None


def _check_free(folder: Path) -> None:
    """Refuses a folder that holds anything but an earlier export."""
    if not folder.exists():
        return
    present = {path.name for path in folder.iterdir()} if folder.is_dir() else {folder.name}
    ours: set[str] = set()
    with suppress(OSError, ValueError, KeyError):  # Python leaves its cache beside a module that was used
        ours = {MANIFEST, "__pycache__", *json.loads((folder / MANIFEST).read_text())["files"]}
    if strange := sorted(present - ours):
        raise UsageError(f"{folder} holds {strange[0]}, which is no part of an export: choose another --out.")


def _put(draft: Path, folder: Path) -> None:
    """Moves a finished folder into its place, an earlier export out of it."""
    old = draft.with_name(draft.name + ".old")
    if folder.exists():
        folder.rename(old)
    draft.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _compare(parts: Parts, expected: Answers, found: Mapping[str, Answers]) -> float:
    """Returns the largest difference between the outputs of policy and files; raises an error if it is too large."""
    largest = 0.0
    for file, answers in found.items():
        which = [parts.stems.index(file)] if file in parts.stems else range(len(parts.stems))
        for i, outputs, actions in zip(which, answers.outputs, answers.actions, strict=True):
            wanted = expected.outputs[i]
            apart = _relative(outputs, wanted)
            if not apart <= TOLERANCE:
                raise _mismatch(file, parts, i, "outputs", apart)
            # Rounding may decide a choice between equals, and a low temperature or a wide range make a difference larger.
            space, rules = parts.team.spaces[i], parts.team.rules
            clear = _clear(space, wanted)[:, None] if space.heads and rules.world_action != "soft" else True
            grown = max(1.0, 1 / rules.temperature if space.heads else float(np.max(np.subtract(space.high, space.low))) / 2)
            off = _relative(np.where(clear, actions, expected.actions[i]), expected.actions[i])
            if not off <= TOLERANCE * grown:
                raise _mismatch(file, parts, i, "actions", off)
            largest = max(largest, apart)
    return largest


def _relative(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.max(np.abs(found - wanted) / (1 + np.abs(wanted)))) if found.shape == wanted.shape else np.inf


def _mismatch(file: str, parts: Parts, i: int, what: str, apart: float) -> UsageError:
    agent = parts.about["agents"][i]
    return UsageError(
        f"the exported {file} gives other {what} for {agent} than the policy does (by {apart:.2g}): nothing was written;"
        " please report it with the versions of numpy, onnx and onnxruntime."
    )


def _clear(space: numpy_policy.Space, outputs: np.ndarray) -> np.ndarray:
    """Returns [B]: whether in every head the best choice is ahead of the second by more than rounding."""
    edges = np.cumsum((0, *space.heads))
    tops = [np.sort(outputs[:, start:stop], axis=1)[:, -2:] for start, stop in pairwise(edges)]
    return np.all(
        [top[:, -1] - top[:, 0] > 10 * TOLERANCE * (1 + np.abs(top[:, -1])) for top in tops if top.shape[1] > 1], axis=0
    )


# --- NumPy: .npz files, and the module that runs them.


def _write_numpy(folder: Path, parts: Parts) -> None:
    files = {stem: parts.agent(i) for i, stem in enumerate(parts.stems)} | {"team": (parts.team, parts.about)}
    for stem, (team, about) in files.items():
        np.savez(folder / f"{stem}.npz", about=np.array(json.dumps(about)), **numpy_policy.pack(team))  # pyright: ignore[reportArgumentType]
    shutil.copyfile(Path(numpy_policy.__file__), folder / "policy.py")


ASK = """
import sys
sys.modules.update(dict.fromkeys(("jax", "jaxlib", "counterpoint", "safetensors"), None))  # any import of these fails
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import numpy as np
import policy
said = {}
for file, seen in np.load(sys.argv[1] + "/.question.npz").items():
    team = policy.Policy.load(f"{sys.argv[1]}/{file}").team
    hidden = policy.begin_hidden(team, seen.shape[1])
    for obs in seen:
        raw, hidden = policy.remembering(team, hidden, obs)
    said[file + ".outputs"] = raw
    said[file + ".actions"] = policy.to_world(team, policy.best(team, raw))
np.savez(sys.argv[1] + "/.reply.npz", **said)
"""
"""A program that knows nothing but NumPy and the exported module."""


def _ask_numpy(folder: Path, parts: Parts, obs: np.ndarray) -> dict[str, Answers]:
    question, reply = folder / ".question.npz", folder / ".reply.npz"
    sizes = zip(parts.stems, parts.about["obs_sizes"], strict=True)
    seen = {f"{stem}.npz": obs[:, :, i : i + 1, :size] for i, (stem, size) in enumerate(sizes)}
    np.savez(question, **seen | {"team.npz": obs})  # pyright: ignore[reportArgumentType]
    done = subprocess.run(
        [sys.executable, "-I", "-c", ASK, str(folder)], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        raise UsageError(f"the exported files do not run with NumPy alone: {done.stderr.strip().splitlines()[-1]}")
    with np.load(reply) as file:
        said = dict(file.items())
    question.unlink()
    reply.unlink()
    answers, spaces = {}, parts.team.spaces
    for stem in (*parts.stems, "team"):
        sizes = [space.size for space in spaces] if stem == "team" else [spaces[parts.stems.index(stem)].size]
        both = (said[f"{stem}.npz.outputs"], said[f"{stem}.npz.actions"])
        answers[stem] = Answers(*([each[:, k, :size] for k, size in enumerate(sizes)] for each in both))
    return answers


# --- safetensors: plain arrays at their true sizes.


def _write_safetensors(folder: Path, parts: Parts) -> None:
    whole: dict[str, np.ndarray] = {}
    for i, (stem, name) in enumerate(zip(parts.stems, parts.about["agents"], strict=True)):
        team, about = parts.agent(i)
        # Plain [I, H] and [H]: of a team of one, and of one world, nothing is left to tell apart.
        own = {
            key: np.ascontiguousarray(array[0] if key.endswith("weight") else array[0, 0])
            for key, array in numpy_policy.pack(team).items()
        }
        safetensors.numpy.save_file(own, folder / f"{stem}.safetensors", {"about": json.dumps(about)})
        whole |= {f"{name}.{key}": array for key, array in own.items()}
    safetensors.numpy.save_file(whole, folder / "team.safetensors", {"about": json.dumps(parts.about)})


def _ask_safetensors(folder: Path, parts: Parts, obs: np.ndarray) -> dict[str, Answers]:
    answers = {}
    for stem in (*parts.stems, "team"):
        with safetensors.safe_open(folder / f"{stem}.safetensors", "np") as file:
            names = file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
            about = json.loads(file.metadata()["about"])
        said = []
        for k, name in enumerate(about["agents"]):
            prefix = f"{name}." if stem == "team" else ""
            own = {
                key.removeprefix(prefix): array
                for key, array in tensors.items()
                if re.fullmatch(re.escape(prefix) + r"\d+\.\w+", key)
            }
            own = {key: array[None] if key.endswith("weight") else array[None, None] for key, array in own.items()}
            facts = about | {key: about[key][k : k + 1] for key in PER_AGENT}
            team = numpy_policy.unpack(own, facts).team
            hidden, raw = numpy_policy.begin_hidden(team, obs.shape[1]), np.zeros(0)
            for seen in obs[:, :, parts.about["agents"].index(name), None, : facts["obs_sizes"][0]]:
                raw, hidden = numpy_policy.remembering(team, hidden, seen)
            both = raw, numpy_policy.to_world(team, numpy_policy.best(team, raw))
            said.append([each[:, 0, : team.spaces[0].size] for each in both])
        answers[stem] = Answers(*map(list, zip(*said, strict=True)))
    return answers


# --- ONNX: one graph per agent, and all of them in one for the team.


def _write_onnx(folder: Path, parts: Parts) -> None:
    from counterpoint.policies import onnx_graph

    graphs = []
    for i, stem in enumerate(parts.stems):
        team, about = parts.agent(i)
        onnx_graph.save(folder / f"{stem}.onnx", [onnx_graph.Graph("", team)], about)
        graphs.append(onnx_graph.Graph(f"{parts.about['agents'][i]}.", team))
    onnx_graph.save(folder / "team.onnx", graphs, parts.about)


def _ask_onnx(folder: Path, parts: Parts, obs: np.ndarray) -> dict[str, Answers]:
    onnxruntime = _import("onnxruntime")
    onnxruntime.set_default_logger_severity(3)
    answers = {}
    for stem in (*parts.stems, "team"):
        session = onnxruntime.InferenceSession(folder / f"{stem}.onnx", providers=["CPUExecutionProvider"])
        about = json.loads(session.get_modelmeta().custom_metadata_map["about"])
        prefixes = [f"{name}." if stem == "team" else "" for name in about["agents"]]
        names = [result.name for result in session.get_outputs()]
        width, said = numpy_policy.num_hidden(parts.team.layers), {}
        feed = {f"{prefix}hidden": np.zeros((obs.shape[1], width), np.float32) for prefix in prefixes if width}
        for seen in obs:
            for prefix, name, size in zip(prefixes, about["agents"], about["obs_sizes"], strict=True):
                feed[f"{prefix}obs"] = np.ascontiguousarray(seen[:, parts.about["agents"].index(name), :size])
            said = dict(zip(names, session.run(names, feed), strict=True))
            feed |= {f"{prefix}hidden": said[f"{prefix}next_hidden"] for prefix in prefixes if width}
        for prefix, space in zip(prefixes, about["spaces"], strict=True):
            edges = list(pairwise(np.cumsum((0, *space["heads"]))))
            chosen = [said[f"{prefix}outputs"][:, start:stop].argmax(1) for start, stop in edges]
            if chosen and not np.array_equal(np.stack(chosen, axis=1), said[f"{prefix}choice"]):
                raise UsageError(f"the exported {stem}.onnx names other choices than its outputs: nothing was written.")
        answers[stem] = Answers(*([said[prefix + what] for prefix in prefixes] for what in ("outputs", "action")))
    return answers


# --- What is exported, and answers to compare it with.


def _plain(run: Run, policy: Policy) -> Actors:
    """Returns the policy as plain networks, or refuses."""
    actors = policy.actors(policy.parameters)
    if actors is None:
        raise UsageError(f"the actors of {run.path} are not plain networks of ours: such a policy cannot be exported.")
    return actors


def parts_of(run: Run, policy: Policy, seed_index: int) -> Parts:
    """Returns what is exported of a run's policy."""
    spec, first_seed = policy.env.spec, configs.from_dict(run.config).training.seed
    actors = _plain(run, policy)
    rules = numpy_policy.Rules(**actors.rules)
    each = range(spec.num_agents)
    spaces = tuple(map(numpy_policy.space_of, spec.action_spaces))
    team = numpy_policy.make_team(numpy_policy.layers_of(*jax.device_get((actors.layers, actors.std))), spaces, rules)
    saved = policy.about or run.policy_about()
    about = {
        "counterpoint": __version__,
        "run": run.name,
        "scenario": policy.env.name,
        "seed": first_seed + seed_index,
        "step": saved.get("step"),
        "episodes": saved.get("episodes"),
        "agents": list(spec.agents),
        "obs_sizes": list(spec.obs_sizes),
        "spaces": [space._asdict() for space in spaces],
        "integers": [recorded.integers(policy.env, i) for i in each],
        "joined": [recorded.joined(policy.env, i) for i in each],
        "rules": rules._asdict(),
    }
    return Parts(team, about, stems_of(spec.agents))


def stems_of(agents: tuple[str, ...]) -> list[str]:
    """Returns file names for agents: their own names where a file system allows them, made distinct where needed."""
    stems: list[str] = []
    for agent in agents:
        stem = plain = re.sub(r"[^\w.-]+", "_", agent).strip(".") or "agent"
        count = 1
        while stem in (*stems, "team", "policy", "export"):
            count += 1
            stem = f"{plain}-{count}"
        stems.append(stem)
    return stems


def trials_of(run: Run, policy: Policy, count: int) -> tuple[np.ndarray, Answers]:
    """Returns random observations [T, B, N, O], some of them large, and the policy's answers to the last of them.

    A recurrent policy gets several, one after another; others get one.
    """
    spec, actor = policy.env.spec, _plain(run, policy).layers
    generator = np.random.default_rng(0)
    recurrent = getattr(actor, "cell", None) is not None
    obs = generator.normal(size=(NUM_RECALLED if recurrent else 1, count, *spec.obs_mask.shape)) * spec.obs_mask
    obs[:, ::2] *= 10.0
    obs = obs.astype(np.float32)
    carry = jax.vmap(policy.algo.begin)(jax.random.split(prng.key(0), count))
    if recurrent:
        outputs = jax.vmap(_recalled, in_axes=(0, 2), out_axes=1)(actor, jnp.asarray(obs))
    else:
        outputs = jax.vmap(mlp, in_axes=(0, 1), out_axes=1)(actor, jnp.asarray(obs[0]))
    outputs, action = np.asarray(outputs), jnp.zeros(())
    for seen in obs:
        action, carry = policy.algo.greedy(policy.parameters, carry, jnp.asarray(seen), None)
    greedy = np.asarray(to_world(spec, action))
    columns = list(enumerate(spec.act_sizes))
    return obs, Answers([outputs[:, i, :size] for i, size in columns], [greedy[:, i, :size] for i, size in columns])


def _recalled(actor: Any, obs: jax.Array) -> jax.Array:
    """Returns the outputs [B, A] of one recurrent actor after the last of its observations [T, B, O]."""
    hidden = jnp.zeros((obs.shape[1], actor.cell.state.weight.shape[0]))
    for seen in obs:
        hidden = gru(actor.cell, hidden, jax.nn.relu(mlp(actor.body, seen)) if actor.body else seen)
    return mlp(actor.head, hidden)
