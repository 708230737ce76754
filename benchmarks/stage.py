"""Measures how many pictures per second a shared page draws, with 10 and 100 agents: `python benchmarks/stage.py`.

The page runs in headless Chromium, as fast as it can: each picture takes one step of the world and of the team, the translated
drawing with its trails, and the canvas. The browser's own pace of 60 pictures per second is measured beside it.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser import opened  # noqa: E402 — the path comes first
from counterpoint.algos.base import find  # noqa: E402
from counterpoint.core import prng  # noqa: E402
from counterpoint.envs import make  # noqa: E402
from counterpoint.policies.policy import Policy  # noqa: E402
from counterpoint.view.share import About, build  # noqa: E402

SECONDS = 5
FAST = """new Promise(done => {{ const c = counterpoint, s = c.stage; c.play(false); s.start(0); let count = 0;
  const end = performance.now() + {ms}, begin = performance.now();
  const turn = () => {{ const until = performance.now() + 50;
    while (performance.now() < until) {{ if (!s.advance()) s.start(s.seed + 1); c.paint(); count++; }}
    performance.now() < end ? setTimeout(turn) : done(1000 * count / (performance.now() - begin)); }}; turn(); }})"""
PACED = """new Promise(done => {{ const c = counterpoint; c.faster(12); c.play(true); const from = c.frames_drawn,
  begin = performance.now(); setTimeout(() => done(1000 * (c.frames_drawn - from) / (performance.now() - begin)), {ms}); }})"""


def main() -> None:
    entry = find("maddpg")
    print("| agents | page | pictures per second, one step each | as the page plays |\n|--:|--:|--:|--:|")
    with opened() as browser, tempfile.TemporaryDirectory() as folder:
        for agents in (10, 100):
            world = make("simple_spread", N=agents, max_steps=100)
            spec = world.spec
            algo = entry.make(entry.settings(num_units=64), spec, np.eye(agents, dtype=bool), None)
            team = Policy(world, algo, algo.policy(algo.init(prng.key(0))))
            path = Path(folder) / f"{agents}.html"
            path.write_text(build(team, [], [], About(run="stage")).html)
            page = browser.page()
            page.open(path)
            page.wait("counterpoint.frames_drawn > 2")
            fast, paced = (page.run(code.format(ms=1000 * SECONDS)) for code in (FAST, PACED))
            print(f"| {agents} | {path.stat().st_size / 1000:,.0f} kB | {fast:.0f} | {paced:.0f} |", flush=True)


if __name__ == "__main__":
    main()
