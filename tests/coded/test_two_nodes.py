"""Two Ray nodes on this machine, one of which is cut off during the run."""

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress

import pytest

SCRIPT = """
    import os, signal, sys, psutil
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0", RAY_worker_niceness="0")
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    from ray.cluster_utils import Cluster
    import counterpoint

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    other = cluster.add_node(num_cpus=2)
    said = []

    class Heard(counterpoint.training.progress.Progress):
        def say(self, sentence):
            said.append(sentence)
            print(sentence, flush=True)

        def report(self, row):
            print("step", row["step"], flush=True)
            if row["step"] == 400:  # the second node stops responding
                freeze(signal.SIGSTOP)

    def freeze(number):
        for info in [info for kind in other.all_processes.values() for info in kind]:
            family = psutil.Process(info.process.pid)
            for member in [*family.children(recursive=True), family]:
                member.send_signal(number)

    settings = dict(scenario="simple_spread", scenario_args=("N=2",), num_episodes=480, batch_size=64, num_units=16, warmup=200,
                    report_every=8, save_rate=32, eval_episodes=0, plots_dir="", save_dir=sys.argv[1])
    run = counterpoint.train(progress=Heard(), learners=4, code="backup", ray_address=cluster.address, patience=8.0, pad=0.3,
                             exp_name="cut", **settings)
    print("finished", flush=True)
    freeze(signal.SIGCONT)
    cluster.shutdown()
"""


@pytest.mark.slow
def test_training_continues_when_a_node_is_cut_off(tmp_path):
    script = textwrap.dedent(SCRIPT).replace("import counterpoint\n", "import counterpoint, counterpoint.training.progress\n")
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
    )
    try:
        out, _ = process.communicate(timeout=400)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert "finished" in out, out[-3000:]
    assert "is lost (no response for 8 s)" in out, "the node is cut off while learners are working"
    assert (tmp_path / "cut" / "team.gif").exists()
