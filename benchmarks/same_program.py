"""Whether two checkouts compile to the same training program: python benchmarks/same_program.py CHECKOUT CHECKOUT

Compiles both phases of the paper's setting (simple_spread, two devices) in each checkout and compares the optimised
instructions, without names and source positions. Equal programs have equal speed, which no noisy machine can show so well.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

PRINT = """
import sys
sys.path[:0] = [f"{sys.argv[1]}/src", f"{sys.argv[1]}/benchmarks"]
import training

class Printed(training.Trainer):
    def seconds(self, learn, iterations):
        text = self._phases[learn].lower(self._loop, iterations, False).compile().as_text()
        open(f"{sys.argv[2]}/{learn}.txt", "w").write(text)
        return 0.0

Printed(100, devices=2)
"""


def instructions(checkout: str, learn: bool, folder: Path) -> list[str]:
    """Returns the instructions of one phase, without names."""
    lines = (folder / f"{learn}.txt").read_text().splitlines()
    bare = (re.sub(r"%[\w.-]+", "%", re.sub(r", metadata=\{[^}]*\}", "", line)).strip() for line in lines)
    return [line for line in bare if re.match(r"(ROOT )?% = ", line)]


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    programs = []
    for checkout in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            words = [sys.executable, "-c", PRINT, checkout, folder]
            subprocess.run(words, check=True, env=os.environ | {"XDG_CACHE_HOME": f"{folder}/cache"})
            programs.append({learn: instructions(checkout, learn, Path(folder)) for learn in (False, True)})
    before, after = programs
    for learn, title in ((False, "warming up"), (True, "learning")):
        more, fewer = Counter(after[learn]) - Counter(before[learn]), Counter(before[learn]) - Counter(after[learn])
        print(f"{title}: {len(before[learn])} and {len(after[learn])} instructions, equal: {before[learn] == after[learn]}")
        for sign, lines in (("+", more), ("-", fewer)):
            for line, count in sorted(lines.items())[:20]:
                print(f"  {sign} {count} × {line}")


if __name__ == "__main__":
    main()
