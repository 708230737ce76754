"""Unity without Unity: `mlagents_envs` and `unityagents` as far as their Python interfaces go, played from a script.

A script says what agents report after each exchange. `fake_mlagents` and `fake_unityagents` are modules whose classes have the
names, signatures and checks of mlagents_envs 1.1.0 and unityagents 0.4.0; the real packages play the same scripts through a
communicator of ours where they are installed (`real_mlagents`, `real_unityagents`).
"""

import sys
from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np


class Kind(NamedTuple):
    """What agents of a behaviour see and do."""

    obs_shapes: tuple[tuple[int, ...], ...] = ((2,),)
    continuous: int = 0
    branches: tuple[int, ...] = ()


class Says(NamedTuple):
    """One agent's part of a message."""

    behaviour: str
    id: int
    obs: tuple[Any, ...]
    reward: float = 0.0
    done: bool = False
    max_step_reached: bool = False
    group_reward: float = 0.0
    forbidden: tuple[int, ...] = ()
    """Choices, counted over all branches."""


class Script:
    """Episodes of messages, each a list of what agents say; `received` are the actions that came back, [agents, size] each."""

    def __init__(self, kinds: dict[str, Kind], *episodes: list[list[Says]], over_after: int = 10**9) -> None:
        self.kinds, self.episodes, self.over_after = kinds, episodes, over_after
        self.episode, self.frame = -1, 0
        self.received: list[dict[str, list[list[float]]]] = []

    def reset(self) -> list[Says]:
        self.episode, self.frame = self.episode + 1, 0
        return self.now

    def step(self, actions: dict[str, list[list[float]]]) -> list[Says]:
        self.received.append(actions)
        self.frame += 1
        return self.now

    @property
    def now(self) -> list[Says]:
        return self.episodes[min(self.episode, len(self.episodes) - 1)][self.frame]

    @property
    def over(self) -> bool:
        return self.frame >= self.over_after


def says(id: int, seen: float, behaviour: str = "Ball", **more: Any) -> Says:
    """An agent that sees a number and its opposite."""
    return Says(behaviour, id, ([seen, -seen],), **more)


class Endless(Script):
    """Three rackets in episodes of five steps, for ever; the middle one ends by time."""

    def __init__(self) -> None:
        super().__init__({"Ball": Kind(continuous=2)})

    @property
    def now(self) -> list[Says]:
        done = self.frame > 0 and self.frame % 5 == 0
        return [says(k, float(self.frame), reward=1.0, done=done, max_step_reached=k == 1) for k in range(3)]


# --- mlagents_envs


class DecisionStep(NamedTuple):
    obs: list[np.ndarray]
    reward: float
    agent_id: int
    action_mask: list[np.ndarray] | None
    group_id: int
    group_reward: float


class TerminalStep(NamedTuple):
    obs: list[np.ndarray]
    reward: float
    interrupted: bool
    agent_id: int
    group_id: int
    group_reward: float


class Steps(Mapping):
    """What the two kinds of batches share: agents by number."""

    agent_id: np.ndarray

    def __len__(self):
        return len(self.agent_id)

    def __iter__(self):
        yield from self.agent_id

    def _where(self, agent_id):
        if agent_id not in self.agent_id:
            raise KeyError(f"agent_id {agent_id} is not present")
        return int(np.where(self.agent_id == agent_id)[0][0])


class DecisionSteps(Steps):
    def __init__(self, obs, reward, agent_id, action_mask, group_id, group_reward):
        self.obs, self.reward, self.agent_id, self.action_mask = obs, reward, agent_id, action_mask
        self.group_id, self.group_reward = group_id, group_reward

    def __getitem__(self, agent_id):
        k = self._where(agent_id)
        mask = None if self.action_mask is None else [branch[k] for branch in self.action_mask]
        return DecisionStep(
            [part[k] for part in self.obs], self.reward[k], agent_id, mask, self.group_id[k], self.group_reward[k]
        )


class TerminalSteps(Steps):
    def __init__(self, obs, reward, interrupted, agent_id, group_id, group_reward):
        self.obs, self.reward, self.interrupted, self.agent_id = obs, reward, interrupted, agent_id
        self.group_id, self.group_reward = group_id, group_reward

    def __getitem__(self, agent_id):
        k = self._where(agent_id)
        return TerminalStep(
            [part[k] for part in self.obs],
            self.reward[k],
            self.interrupted[k],
            agent_id,
            self.group_id[k],
            self.group_reward[k],
        )


class ActionTuple:
    def __init__(self, continuous=None, discrete=None):
        agents = (continuous if continuous is not None else discrete).shape[0]
        self.continuous = np.zeros((agents, 0), np.float32) if continuous is None else continuous.astype(np.float32)
        self.discrete = np.zeros((agents, 0), np.int32) if discrete is None else discrete.astype(np.int32)


class ActionSpec(NamedTuple):
    continuous_size: int
    discrete_branches: tuple[int, ...]

    @property
    def discrete_size(self):
        return len(self.discrete_branches)

    def empty_action(self, n_agents):
        return ActionTuple(np.zeros((n_agents, self.continuous_size)), np.zeros((n_agents, self.discrete_size)))


class ObservationSpec(NamedTuple):
    shape: tuple[int, ...]
    dimension_property: tuple[Any, ...]
    observation_type: Any
    name: str


class BehaviorSpec(NamedTuple):
    observation_specs: list[ObservationSpec]
    action_spec: ActionSpec


class UnityActionException(Exception):
    pass


class EngineConfigurationChannel:
    def __init__(self):
        self.settings = {}

    def set_configuration_parameters(
        self, width=None, height=None, quality_level=None, time_scale=None, target_frame_rate=None, capture_frame_rate=None
    ):
        self.settings["time_scale"] = time_scale


class MLAgentsEnvironment:
    """`mlagents_envs.environment.UnityEnvironment`."""

    builds: ClassVar[dict[str, Script]] = {}

    def __init__(
        self,
        file_name=None,
        worker_id=0,
        base_port=None,
        seed=0,
        no_graphics=False,
        no_graphics_monitor=False,
        timeout_wait=60,
        additional_args=None,
        side_channels=None,
        log_folder=None,
        num_areas=1,
    ):
        self.arguments = {"base_port": base_port, "seed": seed, "side_channels": side_channels}
        self.script = self.builds[file_name]
        self.specs: dict[str, BehaviorSpec] = {}
        self.state: dict[str, tuple[DecisionSteps, TerminalSteps]] = {}
        self.actions: dict[str, ActionTuple] = {}
        self.closed = False

    @property
    def behavior_specs(self):
        return dict(self.specs)

    def reset(self):
        self._take(self.script.reset())

    def step(self):
        for name in self.specs:  # the blanks are filled with zeros
            self.actions.setdefault(name, self.specs[name].action_spec.empty_action(len(self.state[name][0])))
        sent = {}
        for name, action in self.actions.items():
            if len(self.state[name][0]):
                sent[name] = np.concatenate([action.continuous, action.discrete], axis=1).tolist()
        self._take(self.script.step(sent))

    def set_actions(self, behavior_name, action):
        self._check(behavior_name, action, len(self.state[behavior_name][0]))
        self.actions[behavior_name] = action

    def set_action_for_agent(self, behavior_name, agent_id, action):
        self._check(behavior_name, action, 1)
        asking = self.state[behavior_name][0].agent_id
        self.actions.setdefault(behavior_name, self.specs[behavior_name].action_spec.empty_action(len(asking)))
        where = np.where(asking == agent_id)[0]
        if not where.size:
            raise IndexError(f"agent_id {agent_id} is did not request a decision at the previous step")
        self.actions[behavior_name].continuous[where[0]] = action.continuous[0]
        self.actions[behavior_name].discrete[where[0]] = action.discrete[0]

    def get_steps(self, behavior_name):
        return self.state[behavior_name]

    def close(self):
        self.closed = True

    def _check(self, name, action, agents):
        spec = self.specs[name].action_spec
        if action.continuous.shape != (agents, spec.continuous_size) or action.discrete.shape != (agents, spec.discrete_size):
            raise UnityActionException(f"The behavior {name} needs other dimensions")

    def _take(self, message):
        self.actions = {}
        for says in message:
            kind = self.script.kinds[says.behaviour]
            observed = [ObservationSpec(shape, (), None, "") for shape in kind.obs_shapes]
            self.specs.setdefault(says.behaviour, BehaviorSpec(observed, ActionSpec(kind.continuous, kind.branches)))
        for name in self.specs:
            kind = self.script.kinds[name]
            mine = [says for says in message if says.behaviour == name]
            asking, ended = ([says for says in mine if says.done == done] for done in (False, True))
            mask = None
            if kind.branches:
                flat = np.array([[k in says.forbidden for k in range(sum(kind.branches))] for says in asking], bool)
                mask = np.split(flat.reshape(len(asking), -1), np.cumsum(kind.branches)[:-1], axis=1)
            self.state[name] = (
                DecisionSteps(
                    _stacked(asking, kind),
                    _row(asking, "reward"),
                    _row(asking, "id", np.int32),
                    mask,
                    [0] * len(asking),
                    _row(asking, "group_reward"),
                ),
                TerminalSteps(
                    _stacked(ended, kind),
                    _row(ended, "reward"),
                    _row(ended, "max_step_reached", bool),
                    _row(ended, "id", np.int32),
                    [0] * len(ended),
                    _row(ended, "group_reward"),
                ),
            )


def _stacked(agents, kind):
    parts = range(len(kind.obs_shapes))
    return [np.array([says.obs[k] for says in agents], np.float32).reshape(len(agents), *kind.obs_shapes[k]) for k in parts]


def _row(agents, name, dtype=np.float32):
    return np.array([getattr(says, name) for says in agents], dtype)


def fake_mlagents() -> dict[str, ModuleType]:
    """The modules under the names of mlagents_envs."""
    base = _module(
        "mlagents_envs.base_env", DecisionSteps, TerminalSteps, ActionTuple, ActionSpec, ObservationSpec, BehaviorSpec
    )
    environment = _module("mlagents_envs.environment", UnityEnvironment=MLAgentsEnvironment)
    channels = "mlagents_envs.side_channel"
    engine = _module(f"{channels}.engine_configuration_channel", EngineConfigurationChannel)
    modules = [_module("mlagents_envs"), _module(channels), base, environment, engine]
    return {module.__name__: module for module in modules}


def _module(name: str, *classes: type, **named: type) -> ModuleType:
    module = ModuleType(name)
    vars(module).update({kind.__name__: kind for kind in classes} | named)
    return module


def endless_build() -> Any:
    """A factory as a user would write it, around the fake."""
    from counterpoint.external import unity

    sys.modules.update(fake_mlagents())
    MLAgentsEnvironment.builds["Builds/Endless"] = Endless()
    return unity.mlagents("Builds/Endless")


# --- unityagents


class BrainInfo:
    def __init__(
        self, visual_observation, vector_observation, text_observations, memory=None,
        reward=None, agents=None, local_done=None, vector_action=None, text_action=None, max_reached=None,
    ):  # fmt: skip
        self.visual_observations, self.vector_observations = visual_observation, vector_observation
        self.rewards, self.agents, self.local_done, self.max_reached = reward, agents, local_done, max_reached


class UdacityEnvironment:
    """`unityagents.environment.UnityEnvironment`."""

    builds: ClassVar[dict[str, Script]] = {}

    def __init__(
        self, file_name=None, worker_id=0, base_port=5005, curriculum=None, seed=0, docker_training=False, no_graphics=False
    ):
        self.arguments = {"base_port": base_port, "seed": seed}
        self.script = self.builds[file_name]
        self.global_done = None
        self.external_brain_names = self.brain_names = list(self.script.kinds)
        self.brains = {
            name: SimpleNamespace(
                vector_action_space_size=kind.continuous or kind.branches[0],
                vector_action_space_type="continuous" if kind.continuous else "discrete",
            )
            for name, kind in self.script.kinds.items()
        }
        self.closed = False

    def reset(self, train_mode=True, config=None, lesson=None):
        return self._take(self.script.reset())

    def step(self, vector_action=None, memory=None, text_action=None):
        if self.global_done is None or self.global_done:
            raise UnityActionException("Reset the environment with 'reset()'")
        sent = {}
        for name, kind in self.script.kinds.items():
            flat = np.asarray(vector_action[name], float).reshape(-1)
            if flat.size != self.agents[name] * (kind.continuous or 1):
                raise UnityActionException(f"The brain {name} was provided: {flat}")
            if self.agents[name]:
                sent[name] = flat.reshape(self.agents[name], -1).tolist()
        return self._take(self.script.step(sent))

    def close(self):
        self.closed = True

    def _take(self, message):
        self.global_done = self.script.over
        infos = {}
        for name, kind in self.script.kinds.items():
            mine = [says for says in message if says.behaviour == name]
            infos[name] = BrainInfo(
                [], *_stacked(mine, kind), [""] * len(mine), reward=[says.reward for says in mine],
                agents=[says.id for says in mine], local_done=[says.done for says in mine],
                max_reached=[says.max_step_reached for says in mine],
            )  # fmt: skip
        self.agents = {name: len(info.agents) for name, info in infos.items()}
        return infos


def fake_unityagents() -> dict[str, ModuleType]:
    """The modules under the names of unityagents."""
    environment = _module("unityagents.environment", UnityEnvironment=UdacityEnvironment)
    environment.np = np  # pyright: ignore[reportAttributeAccessIssue]
    return {"unityagents": _module("unityagents", UnityEnvironment=UdacityEnvironment), "unityagents.environment": environment}


# --- The real packages, if they are here, with a communicator that plays a script instead of talking to a build.


def real_mlagents(script: Script) -> Any:
    """A real `UnityEnvironment` of mlagents_envs that believes to talk to a build."""
    from mlagents_envs.communicator_objects import (
        agent_info_pb2,
        brain_parameters_pb2,
        command_pb2,
        observation_pb2,
        unity_output_pb2,
        unity_rl_initialization_output_pb2,
        unity_rl_output_pb2,
    )
    from mlagents_envs.environment import UnityEnvironment

    class Communicator:
        def initialize(self, inputs, poll_callback=None):
            answer = unity_rl_initialization_output_pb2.UnityRLInitializationOutputProto(
                name="fake", communication_version=UnityEnvironment.API_VERSION, package_version="2.3.0"
            )
            return unity_output_pb2.UnityOutputProto(rl_initialization_output=answer)

        def exchange(self, inputs, poll_callback=None):
            if inputs.rl_input.command == command_pb2.RESET:
                return self.pack(script.reset())
            sent = {
                name: [[*action.continuous_actions, *action.discrete_actions] for action in actions.value]
                for name, actions in inputs.rl_input.agent_actions.items()
            }
            return self.pack(script.step(sent))

        def close(self):
            pass

        def pack(self, message):
            infos = unity_rl_output_pb2.UnityRLOutputProto()
            brains = []
            for name in {says.behaviour: None for says in message}:
                kind = script.kinds[name]
                brain = brain_parameters_pb2.BrainParametersProto(brain_name=name, is_training=True)
                brain.action_spec.num_continuous_actions = kind.continuous
                brain.action_spec.num_discrete_actions = len(kind.branches)
                brain.action_spec.discrete_branch_sizes.extend(kind.branches)
                brains.append(brain)
                for says in (says for says in message if says.behaviour == name):
                    info = agent_info_pb2.AgentInfoProto(
                        id=says.id, reward=says.reward, done=says.done, max_step_reached=says.max_step_reached,
                        group_reward=says.group_reward,
                        action_mask=[k in says.forbidden for k in range(sum(kind.branches))],
                    )  # fmt: skip
                    for shape, seen in zip(kind.obs_shapes, says.obs, strict=True):
                        data = observation_pb2.ObservationProto.FloatData(data=np.ravel(seen).tolist())
                        info.observations.append(
                            observation_pb2.ObservationProto(
                                shape=shape, compression_type=observation_pb2.NONE, float_data=data
                            )
                        )
                    infos.agentInfos[name].value.append(info)
            start = unity_rl_initialization_output_pb2.UnityRLInitializationOutputProto(brain_parameters=brains)
            return unity_output_pb2.UnityOutputProto(rl_output=infos, rl_initialization_output=start)

    class Environment(UnityEnvironment):
        @staticmethod
        def _get_communicator(worker_id, base_port, timeout_wait):
            return Communicator()

    return Environment()


def real_unityagents(script: Script) -> Any:
    """A real `UnityEnvironment` of unityagents that believes to talk to a build."""
    import communicator_objects as proto
    from unityagents import UnityEnvironment

    class Communicator:
        def initialize(self, inputs):
            brains = [
                proto.BrainParametersProto(
                    brain_name=name,
                    brain_type=2,
                    vector_observation_size=int(np.prod(kind.obs_shapes[0])),
                    num_stacked_vector_observations=1,
                    vector_action_size=kind.continuous or kind.branches[0],
                    vector_action_space_type=1 if kind.continuous else 0,
                    vector_observation_space_type=1,
                )
                for name, kind in script.kinds.items()
            ]
            answer = proto.UnityRLInitializationOutput(name="fake", version="API-4", brain_parameters=brains)
            return proto.UnityOutput(rl_initialization_output=answer)

        def exchange(self, inputs):
            if inputs.rl_input.command == 1:
                return self.pack(script.reset())
            actions = inputs.rl_input.agent_actions
            sent = {name: [list(action.vector_actions) for action in actions[name].value] for name in actions}
            return self.pack(script.step(sent))

        def close(self):
            pass

        def pack(self, message):
            answer = proto.UnityRLOutput(global_done=script.over)
            for name in script.kinds:
                answer.agentInfos[name].SetInParent()
            for says in message:
                info = proto.AgentInfoProto(
                    id=says.id, reward=says.reward, done=says.done, max_step_reached=says.max_step_reached,
                    stacked_vector_observation=np.ravel(says.obs[0]).tolist(),
                )  # fmt: skip
                answer.agentInfos[says.behaviour].value.append(info)
            return proto.UnityOutput(rl_output=answer)

    class Environment(UnityEnvironment):
        def get_communicator(self, worker_id, base_port):
            return Communicator()

    return Environment()


def installed(name: str) -> bool:
    """Whether the real package is here."""
    if name in sys.modules:
        return True
    from importlib.util import find_spec

    return find_spec(name) is not None
