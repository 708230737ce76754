"""Records episodes of mpe2 1.1.1 for tests/envs/test_mpe_further.py: `python tests/golden/record_mpe2.py`, with mpe2 and SciPy.

Each file has two episodes of integer actions and two of real-valued ones, from states as drawn and from crowded ones. Arrays
are [episode, time, …]; states and observations have one moment more than actions, that of the reset.
"""

import importlib
import json
from pathlib import Path
from typing import Any

import mpe2
import numpy as np

STEPS = {"simple_spread_v3 12": 6, "collect_treasure_v1": 25}
"""Steps per episode, where they are not 15."""
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "spread_neighbors": ("simple_spread_v3", {"N": 5, "num_agent_neighbors": 2, "num_landmark_neighbors": 3}),
    "spread_more_neighbors": ("simple_spread_v3", {"N": 2, "num_agent_neighbors": 3, "num_landmark_neighbors": 4}),
    "spread_stage0": ("simple_spread_v3", {"N": 3, "curriculum": True}),
    "spread_stage1": ("simple_spread_v3", {"N": 3, "curriculum": True, "curriculum_stage": 1}),
    "spread_12": ("simple_spread_v3", {"N": 12}),
    "tag_neighbors": (
        "simple_tag_v3",
        {"num_good": 2, "num_adversaries": 3, "num_agent_neighbors": 2, "num_landmark_neighbors": 1},
    ),
    "tag_stage0": ("simple_tag_v3", {"curriculum": True}),
    "tag_stage1": ("simple_tag_v3", {"curriculum": True, "curriculum_stage": 1}),
    "tag_stage2": ("simple_tag_v3", {"curriculum": True, "curriculum_stage": 2}),
    "adversary_neighbors": ("simple_adversary_v3", {"N": 3, "num_agent_neighbors": 2, "num_landmark_neighbors": 1}),
    "formation": ("simple_formation_v1", {}),
    "formation_7": ("simple_formation_v1", {"N": 7}),
    "formation_success": ("simple_formation_v1", {"N": 1, "terminate_on_success": True}),
    "line": ("simple_line_v1", {}),
    "line_7": ("simple_line_v1", {"N": 7}),
    "line_success": ("simple_line_v1", {"N": 1, "terminate_on_success": True}),
    "treasure": ("collect_treasure_v1", {}),
    "treasure_3_kinds": ("collect_treasure_v1", {"num_collectors": 3, "num_deposits": 3, "num_treasures": 12}),
}


def main() -> None:
    folder = Path(__file__).parent / "mpe2_further"
    folder.mkdir(exist_ok=True)
    for number, (name, (module, arguments)) in enumerate(CONFIGS.items()):
        episodes = [episode(module, dict(arguments), 100 * number + i) for i in range(4)]
        data = {key: np.stack([one[key] for one in episodes]) for key in episodes[0]}
        meta = {"mpe2": mpe2.__version__, "module": module, "arguments": arguments}
        np.savez_compressed(folder / f"{name}.npz", meta=json.dumps(meta), **data)


def episode(module: str, arguments: dict[str, Any], seed: int) -> dict[str, np.ndarray]:
    """Returns one episode; odd seeds have real-valued actions, and from the third on everybody starts close together."""
    continuous, crowded = bool(seed % 2), seed % 4 >= 2
    stage, steps = arguments.pop("curriculum_stage", 0), _steps(module, arguments)
    package = importlib.import_module(f"mpe2.{module}")
    env = package.parallel_env(max_cycles=steps, continuous_actions=continuous, benchmark_data=True, **arguments)
    raw, rng = env.unwrapped, np.random.default_rng(seed)
    kind = type(raw.scenario)
    if stage:  # set_curriculum_stage has no effect in mpe2 1.1.1: a property of the base class swallows what it sets
        kind.curriculum_stage = stage
    env.reset(seed=seed)
    if crowded:
        for agent in raw.world.agents:
            agent.state.p_pos = rng.uniform(-0.3, 0.3, 2)
    moments, goal = [moment(raw)], _goal(raw)
    for _ in range(steps):
        if not env.agents:  # over by success: the last moment is repeated, and the test reads no further
            moments.append({**moments[-1], "running": np.array(False)})
            continue
        actions = {agent.name: _draw(agent, raw.world, continuous, rng) for agent in raw.world.agents}
        vectors = np.stack([_vector(actions[agent]) for agent in raw.possible_agents])
        _, reward, terminated, truncated, infos = env.step(actions)
        now = moment(raw)
        now["action"] = vectors
        now["reward"] = np.array([reward[agent] for agent in raw.possible_agents])
        now["terminated"] = np.array([terminated[agent] for agent in raw.possible_agents])
        now["truncated"] = np.array([truncated[agent] for agent in raw.possible_agents])
        if module.startswith("collect"):
            data = [infos[agent]["benchmark_data"] for agent in raw.possible_agents]
            now["benchmark"] = np.array([[-1 if held is None else held, alive] for held, alive in data], float)
        now["running"] = np.array(True)
        moments.append(now)
    env.close()
    if stage:
        del kind.curriculum_stage
    first = moments[0]
    data = {key: np.stack([one[key] for one in moments]) for key in first}
    after = [key for key in moments[1] if key not in first]
    return {**data, **{key: np.stack([one[key] for one in moments[1:]]) for key in after}, "goal": goal}


def _steps(module: str, arguments: dict[str, Any]) -> int:
    return STEPS.get(module) or STEPS.get(f"{module} {arguments.get('N')}", 15)


def moment(raw: Any) -> dict[str, np.ndarray]:
    """Returns the state of the world and what the agents see of it, in float32 as mpe2 returns it."""
    world = raw.world
    seen = [raw.scenario.observation(agent, world) for agent in world.agents]
    width = max(map(len, seen))
    found = {
        "position": np.array([agent.state.p_pos for agent in world.agents]),
        "velocity": np.array([agent.state.p_vel for agent in world.agents]),
        "landmarks": np.array([landmark.state.p_pos for landmark in world.landmarks]),
        "obs": np.stack([np.pad(one, (0, width - len(one))) for one in seen]).astype(np.float32),
    }
    if hasattr(world.agents[0], "holding"):
        holding = [agent.holding for agent in world.agents if agent.collector]
        found["holding"] = np.array([-1 if held is None else held for held in holding])
        found["kind"] = np.array([landmark.type for landmark in world.landmarks])
        found["present"] = np.array([landmark.alive for landmark in world.landmarks])
    return found


def _goal(raw: Any) -> np.ndarray:
    """Returns the index of the goal, if the world has one."""
    goal = getattr(raw.world.agents[0], "goal_a", None)
    return np.array([i for i, landmark in enumerate(raw.world.landmarks) if landmark is goal], np.int32)


def _draw(agent: Any, world: Any, continuous: bool, rng: np.random.Generator) -> Any:
    """Returns a random action, or where there is something to reach, mostly one towards it.

    Real numbers are multiples of 1/1024, which mpe2 subtracts in float32 without loss.
    """
    target = _target(agent, world)
    if target is None or rng.uniform() < 0.2:
        return (rng.integers(1025, size=5) / 1024).astype(np.float32) if continuous else int(rng.integers(5))
    push = np.clip(8 * (target - agent.state.p_pos) - 1.5 * agent.state.p_vel, -1, 1)
    if not continuous:
        axis = int(np.argmax(np.abs(push)))
        return 1 + 2 * axis + int(push[axis] > 0)
    parts = [0.0, max(-push[0], 0), max(push[0], 0), max(-push[1], 0), max(push[1], 0)]
    return (np.round(np.array(parts) * 1024) / 1024).astype(np.float32)


def _target(agent: Any, world: Any) -> np.ndarray | None:
    """Returns where an agent is steered: collectors to treasures and deposits, a single agent to its place."""
    here = agent.state.p_pos
    if hasattr(agent, "holding"):
        if not agent.collector:
            return None
        goals = world.agents[world.num_collectors :] if agent.holding is not None else world.landmarks
        goals = [goal for goal in goals if getattr(goal, "d_i", agent.holding) == agent.holding]
        return min((goal.state.p_pos for goal in goals), key=lambda there: np.linalg.norm(there - here))
    if len(world.agents) == 1:
        centre = world.landmarks[0].state.p_pos
        return centre if len(world.landmarks) == 2 else centre + 0.5 * (here - centre) / np.linalg.norm(here - centre)
    return None


def _vector(action: Any) -> np.ndarray:
    return np.eye(5)[action] if isinstance(action, int) else np.asarray(action, float)


if __name__ == "__main__":
    main()
