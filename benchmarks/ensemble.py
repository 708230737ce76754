"""What a policy ensemble costs: python benchmarks/ensemble.py

Times `--ensemble 3` beside a single policy in simple_tag and simple_adversary with the paper's settings (batch 1024, an update
per 100 world steps, 2×64 networks, one world), both on one device and with equally full replays. The two programs take turns,
and each number is the best of all turns. Wanted: at most 1.3 times a single policy per update, acting included.
"""

from counterpoint.runs.tables import markdown_table
from training import Speed, Trainer

TURNS, ITERATIONS = 12, 10


def main() -> None:
    rows = []
    for scenario in ("simple_tag", "simple_adversary"):
        common = {"scenario": scenario, "devices": 1, "buffer_size": 500_000}
        trainers = {members: Trainer(200_000, ensemble=members, **common) for members in (1, 3)}
        found: dict[int, list[Speed]] = {members: [] for members in trainers}
        for _ in range(TURNS):
            for members, trainer in trainers.items():
                found[members].append(trainer.speed(ITERATIONS, 3))
        best = {
            members: (min(speed.rollout for speed in speeds), min(speed.rollout + speed.update for speed in speeds))
            for members, speeds in found.items()
        }
        for members, (rollout, whole) in best.items():
            cells = [f"{1e3 * seconds:.2f}" for seconds in (rollout, whole - rollout, whole)]
            rows.append([scenario, members, *cells, f"{whole / best[1][1]:.2f}"])
    header = ["world", "sub-policies", "rollout of 100 steps, ms", "update, ms", "both, ms", "× a single policy"]
    print(markdown_table(header, rows), end="")


if __name__ == "__main__":
    main()
