"""Whether two checkouts compile to the same training program: python benchmarks/same_program.py CHECKOUT CHECKOUT

Compiles both phases of the settings that `make bench` times in each checkout and compares the optimised instructions,
without names and source positions. Equal programs have equal speed, which no noisy machine can show so well.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

SETTINGS = {
    "the paper's": {"devices": 2},
    "100 worlds": {"devices": 2, "num_envs": 100},
    "10 agents": {"devices": 2, "scenario_args": ("N=10",)},
    "8 seeds": {"num_seeds": 8},
}
PRINT = """
import ast, sys
sys.path[:0] = [f"{sys.argv[1]}/src", f"{sys.argv[1]}/benchmarks"]
import training

class Printed(training.Trainer):
    def seconds(self, learn, iterations):
        text = self._phases[learn].lower(self._loop, iterations, False).compile().as_text()
        open(f"{sys.argv[2]}/{learn}.txt", "w").write(text)
        return 0.0

Printed(100, **ast.literal_eval(sys.argv[3]))
"""


def instructions(path: Path) -> list[str]:
    """Returns the instructions of one phase, without names."""
    lines = path.read_text().splitlines()
    bare = (re.sub(r"%[\w.-]+", "%", re.sub(r", metadata=\{[^}]*\}", "", line)).strip() for line in lines)
    return [line for line in bare if re.match(r"(ROOT )?% = ", line)]


def program(checkout: str, settings: dict[str, Any]) -> dict[bool, list[str]]:
    """Returns the instructions of both phases, by whether they learn."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-c", PRINT, checkout, folder, repr(settings)]
        subprocess.run(words, check=True, env=os.environ | {"XDG_CACHE_HOME": f"{folder}/cache"})
        return {learn: instructions(Path(folder) / f"{learn}.txt") for learn in (False, True)}


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    for name, settings in SETTINGS.items():
        before, after = (program(checkout, settings) for checkout in sys.argv[1:])
        for learn, title in ((False, "warming up"), (True, "learning")):
            equal = before[learn] == after[learn]
            print(f"{name}, {title}: {len(before[learn])} and {len(after[learn])} instructions, equal: {equal}", flush=True)
            for sign, one, other in (("+", after, before), ("-", before, after)):
                for line, count in sorted((Counter(one[learn]) - Counter(other[learn])).items())[:20]:
                    print(f"  {sign} {count} × {line}")


if __name__ == "__main__":
    main()
