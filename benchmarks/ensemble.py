"""What a policy ensemble costs: python benchmarks/ensemble.py

Times `--ensemble 3` beside a single policy in simple_tag and simple_adversary with the paper's settings (batch 1024, an update
per 100 world steps, 2×64 networks, one world), with equally full replays: both on one device, and both with as many devices as
a run takes by default. The programs take turns, and each number is the best
of all turns. Wanted: at most 1.3 times a single policy per update, acting included.
"""

from counterpoint.runs.tables import markdown_table
from training import Speed, Trainer

TURNS, ITERATIONS = 12, 10
ONE, DEFAULT = 1, 0
"""Values of --devices."""


def main() -> None:
    rows = [row for scenario in ("simple_tag", "simple_adversary") for row in rows_of(scenario)]
    header = ["world", "--devices", "used", "sub-policies", "rollout of 100 steps, ms", "update, ms", "both, ms"]
    print(markdown_table([*header, "× a single policy"], rows), end="")


def rows_of(scenario: str) -> list[list[object]]:
    """Times all programs of a world and returns their rows of the table."""
    trainers = {
        (devices, members): Trainer(200_000, scenario=scenario, devices=devices, ensemble=members, buffer_size=500_000)
        for devices in (DEFAULT, ONE)  # the default first: it decides how many devices this process has
        for members in (1, 3)
    }
    found: dict[tuple[int, int], list[Speed]] = {which: [] for which in trainers}
    for _ in range(TURNS):
        for which, trainer in trainers.items():
            found[which].append(trainer.speed(ITERATIONS, 3))
    best = {
        which: (min(speed.rollout for speed in speeds), min(speed.rollout + speed.update for speed in speeds))
        for which, speeds in found.items()
    }
    rows: list[list[object]] = []
    for (devices, members), (rollout, whole) in best.items():
        cells = [f"{1e3 * seconds:.2f}" for seconds in (rollout, whole - rollout, whole)]
        used = trainers[devices, members].program.num_devices
        rows.append([scenario, devices or "default", used, members, *cells, f"{whole / best[devices, 1][1]:.2f}"])
    return rows


if __name__ == "__main__":
    main()
