"""Importing counterpoint and training open no connection; an external environment's workers use no ports."""

import subprocess
import sys
from pathlib import Path

import pytest

import games
from tiny import tiny_words

WATCHED = """
import sys
seen = []
sys.addaudithook(lambda event, args: seen.append((event, str(args[1]))) if event in ("socket.connect", "socket.bind") else None)
from counterpoint.cli import main
sys.argv = ["counterpoint", *sys.argv[1:]]
main.main()
outside = [address for event, address in seen if "127.0.0.1" not in address and address.startswith("(")]
sys.exit(f"network: {outside}" if outside else 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("env", [("--scenario", "simple"), ("--env", f"{games.__file__}:Zoo")])
def test_training_opens_no_connection(env: tuple[str, str], tmp_path: Path) -> None:
    words = tiny_words(num_episodes=16, save_dir=tmp_path)
    command = [sys.executable, "-c", WATCHED, "train", *env, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr
