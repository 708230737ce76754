"""Learners as Ray processes; all tests share one Ray session, because starting it takes seconds."""

import os
import signal
import socket
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from test_controller import UPDATES, assert_same_bits, case, relative_errors

from counterpoint.coded import ray_transport
from counterpoint.coded.controller import Controller
from counterpoint.coded.settings import Distribution
from counterpoint.core.errors import UsageError

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module", autouse=True)
def ray():
    shutdown = ray_transport.connect("", 4, 0)
    import ray

    yield ray
    shutdown()


def controller(code: str, **settings) -> tuple[Controller, ray_transport.RayTransport]:
    about = case()
    transport = ray_transport.RayTransport(about.work._replace(pad=settings.get("pad", 0.0)), 4)
    return Controller(about.algo, about.work, Distribution(learners=4, code=code, **settings), transport), transport


def test_killed_processes_do_not_change_the_bits_of_the_run():
    """Kills three of four learners with SIGKILL while they work, one in each update; the others take over."""
    update, transport = controller("backup", pad=0.2)
    processes, agents, found = transport.processes, case().agents, []
    for n in range(UPDATES):
        threading.Timer(0.1, os.kill, (processes[n], signal.SIGKILL)).start()
        agents, _ = update(agents, case().batches[n], case().keys[n])
        found.append(jax.device_get(agents))
    update.flush()
    assert "lost" in {row["outcome"] for row in update.rows}
    assert_same_bits(found, case().central)
    deadline = time.monotonic() + 60
    while len(update._alive) < 4 and time.monotonic() < deadline:
        for event in transport.poll(0.5):
            update._handle(event, None)
    assert len(update._alive) == 4, "every killed learner is replaced"
    assert not set(transport.processes.values()) & set(list(processes.values())[:UPDATES])
    update.close()


def test_sums_are_sent_and_decoded():
    update, _ = controller("mds")
    agents, _ = update(case().agents, case().batches[0], case().keys[0])
    assert relative_errors(agents, case().central[0], case().agents).max() < 1e-6
    assert update.times is not None
    assert 0 < update.times.publishing + update.times.fetching + update.times.decoding < update.times.total
    update.close()


def test_ray_listens_on_localhost_only(ray):
    """No port of this session is open on another address of the machine."""
    ports = {int(ray.get_runtime_context().gcs_address.rpartition(":")[2])}
    ports |= {node["NodeManagerPort"] for node in ray.nodes()} | {node["ObjectManagerPort"] for node in ray.nodes()}
    words = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    bound = [word[1].split(":") for word in words if word[3] == "0A"]  # listening
    addresses = {address for address, port in bound if int(port, 16) in ports}
    assert addresses
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}, "127.0.0.1, as IPv4 or within IPv6"
    with socket.create_connection(("127.0.0.1", ports.pop()), timeout=5):
        pass


def test_an_address_without_a_cluster_raises_a_usage_error(ray, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)

    def fail(**settings):
        raise ConnectionError("Could not find any running Ray instance.\nmore words")

    monkeypatch.setattr(ray, "init", fail)
    with pytest.raises(UsageError, match=r"no Ray cluster found at --ray-address 10.0.0.1:6379 \(Could not find any running"):
        ray_transport.connect("10.0.0.1:6379", 1, 0)
    assert np.isfinite(ray_transport.FETCH_LIMIT)
