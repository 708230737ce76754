"""Writes tests/thorough.txt: the tests that take longer than a number of seconds, from a log of pytest --durations=0.

make test ARGS=--durations=0 > fast.log; make test-thorough ARGS=--durations=0 > thorough.log
python tests/thorough.py 3 fast.log thorough.log
"""

import re
import sys
from collections import defaultdict
from pathlib import Path


def main() -> None:
    limit, *logs = sys.argv[1:]
    seconds: dict[str, float] = defaultdict(float)
    for log in logs:
        for line in Path(log).read_text().splitlines():
            if found := re.fullmatch(r"([\d.]+)s (?:call|setup|teardown) +(.*)", line.rstrip()):
                seconds[found[2]] += float(found[1])
    names = sorted(name for name, spent in seconds.items() if spent > float(limit))
    Path(__file__).with_suffix(".txt").write_text("".join(f"{name}\n" for name in names))
    rest = sum(spent for name, spent in seconds.items() if name not in names)
    print(f"{len(names)} tests take more than {limit} s each, the others {rest:.0f} s together")


if __name__ == "__main__":
    main()
