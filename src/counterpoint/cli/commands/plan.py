"""`counterpoint plan`."""

from counterpoint.cli.registry import command


@command("Distributed learning and published results")
def plan(
    agents: int = 8,
    learners: int = 15,
    delays: str = "",
    recording: str = "",
    unit: float = 0.0,
    overhead: float = 0.0,
    agent_bytes: int = 600_000,
    trials: int = 0,
    seed: int = 0,
    out: str = "plan.png",
) -> None:
    """Predict the cost of each scheme of distributed learning and recommend one.

    Args:
        agents: Number of agents that learn.
        learners: Number of learners that compute the updates.
        delays: Model of the delays: k=2,delay=0.25 (2 learners are late by 0.25 s), exponential=0.5, pareto=1.5,
            pauses=0.1,pause=1 (0.1 pauses per second, of 1 s each), slow=2,factor=4 (the same 2 learners are always 4 times
            slower), crash=0.03,recovery=10, or several of them.
        recording: Use the delays that a distributed run recorded instead: the run's folder or its learners.csv.
        unit: Seconds that one agent's update takes on an undelayed learner (0: as recorded, or 0.05).
        overhead: Seconds that each iteration takes in addition (0: as recorded, or none).
        agent_bytes: Size of one agent's networks and optimiser state in bytes.
        trials: Number of simulated iterations (0: 100 to 2000, depending on the size).
        seed: Random seed of the simulation.
        out: File for the figure, ending in .png, .svg or .pdf (empty: no figure).
    """
    from counterpoint.studies import plan as study

    study.plan(agents, learners, delays, recording, unit, overhead, agent_bytes, trials, seed, out)
