"""Environments that misbehave, for the harness: each is called Hostile and told how by its argument."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

KINDS = {
    "hang_init": "never returns from its constructor",
    "hang_reset": "never returns from its first reset",
    "hang_reset_later": "never returns from its fifth reset",
    "hang_step": "never returns from a step",
    "sleep_step": "sleeps in a step, deaf to SIGTERM",
    "exit_step": "ends its process",
    "kill_step": "kills its process",
    "raise_step": "raises an error",
    "raise_base": "raises SystemExit",
    "fork_step": "leaves a child behind",
    "daemon_step": "leaves a child behind that has a session of its own",
    "write_fds": "writes to every open file descriptor",
    "close_fds": "closes every open file descriptor",
    "fill_stdout": "prints without end",
    "nan_reward": "returns NaN as a reward",
    "huge_reward": "returns an infinite reward",
    "wrong_reward": "returns a text as a reward",
    "wrong_obs": "returns an observation of another size",
    "none_obs": "returns None as an observation",
    "nan_obs": "returns NaN as an observation",
    "no_tuple": "returns None from a step",
    "close_raises": "raises in close",
    "close_hangs": "never returns from close",
    "chdir": "changes the working directory",
    "memory": "asks for far more memory than there is",
    "recursion": "recurses without end",
}


class Hostile(gymnasium.Env):
    """One agent, episodes of ten steps; trouble begins in the 30th step of a copy, or where the kind says."""

    def __init__(self, kind: str = "") -> None:
        self.kind, self.steps, self.resets = kind, 0, 0
        self.observation_space, self.action_space = spaces.Box(-1.0, 1.0, (3,)), spaces.Discrete(2)
        if kind == "hang_init":
            _hang()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        self.resets += 1
        if self.kind == "hang_reset" or (self.kind == "hang_reset_later" and self.resets == 5):
            _hang()
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        self.steps += 1
        obs, reward = np.full(3, self.time / 10, np.float32), float(action)
        if self.steps == 30:
            changed = self._trouble(obs, reward)
            if changed is not ...:
                return changed
        return obs, reward, False, self.time >= 10, {}

    def _trouble(self, obs: np.ndarray, reward: float) -> Any:
        match self.kind:
            case "hang_step":
                _hang()
            case "sleep_step":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(100_000)
            case "exit_step":
                os._exit(0)
            case "kill_step":
                os.kill(os.getpid(), signal.SIGKILL)
            case "raise_step":
                raise ValueError("the walls\nfell down")
            case "raise_base":
                raise SystemExit(3)
            case "fork_step":
                subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
                _hang()
            case "daemon_step":
                subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
            case "write_fds":
                for number in range(3, 64):
                    with contextlib.suppress(OSError):
                        os.write(number, b"garbage" * 100)
            case "close_fds":
                os.closerange(3, 256)
            case "fill_stdout":
                while True:
                    os.write(1, b"x" * 65536)
            case "nan_reward":
                return obs, float("nan"), False, False, {}
            case "huge_reward":
                return obs, float("inf"), False, False, {}
            case "wrong_reward":
                return obs, "much", False, False, {}
            case "wrong_obs":
                return np.zeros(7, np.float32), reward, False, False, {}
            case "none_obs":
                return None, reward, False, False, {}
            case "nan_obs":
                return obs * np.nan, reward, False, False, {}
            case "no_tuple":
                return None
            case "chdir":
                os.chdir("/")
            case "memory":
                np.ones(10**14)
            case "recursion":
                return self._trouble(obs, reward)
        return ...

    def close(self) -> None:
        if self.kind == "close_raises":
            raise ValueError("cannot close")
        if self.kind == "close_hangs" and self.steps:
            _hang()


def _hang() -> None:
    while True:
        time.sleep(0.1)
