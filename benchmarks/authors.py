"""The authors' own program in their own particle worlds, so that ours can be compared with it and not only with its reports.

Neither is ours to ship: clone openai/maddpg and openai/multiagent-particle-envs first, then

    make .venv-authors/ready
    .venv-authors/bin/python benchmarks/authors.py path/to/maddpg path/to/multiagent-particle-envs

trains simple_speaker_listener for 6000 episodes on 32 seeds, two at a time, half an hour on two cores; finished seeds are kept
as docs/results/speaker-authors/seed*.csv and are not run again. Their files are not touched; what they need of TensorFlow 1 and
gym 0.10 is stood in for below, and one of their tests for placeholders is replaced. Seeds do not repeat to the bit.
"""

import argparse
import csv
import multiprocessing
import os
import pickle
import random
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

TABLES = Path("docs/results/speaker-authors")
SCENARIO = "simple_speaker_listener"
NUM_AGENTS = 2


def stand_in(name: str, **members: Any) -> ModuleType:
    """A module of that name with these members, importable from now on."""
    module = ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module
    return module


def stand_in_gym() -> None:
    """Spaces that only say how large they are."""
    import numpy as np

    class Discrete:
        def __init__(self, n: int) -> None:
            self.n = n

    class Box:
        def __init__(self, low: float, high: float, shape: tuple[int, ...], dtype: Any = None) -> None:
            self.low, self.high, self.shape = low, high, tuple(shape)

    class Tuple:
        def __init__(self, spaces: list[Any]) -> None:
            self.spaces = spaces

    prng = stand_in("gym.spaces.prng", np_random=np.random)
    spaces = stand_in("gym.spaces", Discrete=Discrete, Box=Box, Tuple=Tuple, MultiBinary=type("MultiBinary", (), {}), prng=prng)
    stand_in("gym", spaces=spaces, Space=object, Env=object)
    stand_in("gym.envs")
    stand_in("gym.envs.registration", EnvSpec=object, register=lambda **_: None)


def stand_in_tensorflow() -> Any:
    """TensorFlow 2's first-version mode under its old name, with the one layer that is gone: Glorot-uniform, zero bias."""
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)

    def fully_connected(inputs: Any, num_outputs: int, activation_fn: Any = tf.nn.relu) -> Any:
        with tf.variable_scope(None, default_name="fully_connected"):
            weights = tf.get_variable(
                "weights", [int(inputs.shape[1]), num_outputs], initializer=tf.glorot_uniform_initializer()
            )
            biases = tf.get_variable("biases", [num_outputs], initializer=tf.zeros_initializer())
            outputs = tf.matmul(inputs, weights) + biases
            return activation_fn(outputs) if activation_fn else outputs

    layers = stand_in("tensorflow.contrib.layers", fully_connected=fully_connected)
    tf.contrib = stand_in("tensorflow.contrib", layers=layers)
    sys.modules["tensorflow"] = tf
    return tf


def train_one(maddpg: str, worlds: str, seed: int, episodes: int) -> None:
    """One seed of their program, in this process; its table unless it is there."""
    table = TABLES / f"seed{seed}.csv"
    if table.exists():
        return
    os.environ.update(SUPPRESS_MA_PROMPT="1", TF_CPP_MIN_LOG_LEVEL="3")
    stand_in_gym()
    tf = stand_in_tensorflow()
    sys.path[:0] = [maddpg, worlds, f"{maddpg}/experiments"]
    import numpy as np
    import train
    from maddpg.common import tf_util

    # Theirs asks for exactly tf.Tensor, of which a placeholder is a subclass by now.
    tf_util.is_placeholder = lambda x: isinstance(x, tf.Tensor) and not x.op.inputs
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 — the state that their worlds draw from
    tf.set_random_seed(seed)
    with tempfile.TemporaryDirectory() as scratch:
        sys.argv = ["train.py", "--scenario", SCENARIO, "--num-episodes", str(episodes), "--exp-name", "run"]
        sys.argv += ["--save-dir", f"{scratch}/policy", "--plots-dir", f"{scratch}/"]
        train.train(train.parse_args())
        returns = pickle.loads(Path(scratch, "run_agrewards.pkl").read_bytes())
    table.parent.mkdir(parents=True, exist_ok=True)
    with table.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["episode", "seed", "team/good"])
        writer.writerows([1000 * (k + 1), seed, value] for k, value in enumerate(returns[::NUM_AGENTS]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("maddpg", help="a clone of openai/maddpg")
    parser.add_argument("worlds", help="a clone of openai/multiagent-particle-envs")
    parser.add_argument("--seeds", type=int, default=32)
    parser.add_argument("--episodes", type=int, default=6000)
    options = parser.parse_args()
    for folder, inside in ((options.maddpg, "experiments/train.py"), (options.worlds, "multiagent/environment.py")):
        if not Path(folder, inside).exists():
            parser.error(f"{folder} has no {inside}: give the path of a clone.")
    jobs = [(options.maddpg, options.worlds, seed, options.episodes) for seed in range(options.seeds)]
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
        pool.starmap(train_one, jobs, chunksize=1)


if __name__ == "__main__":
    main()
