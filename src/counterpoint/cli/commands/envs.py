"""`counterpoint envs`."""

import dataclasses
from typing import Any

from counterpoint.cli.registry import command


@command("Training")
def envs() -> None:
    """List the environments with their agents, observation and action sizes, and arguments."""
    from counterpoint.envs import WORLDS
    from counterpoint.runs.tables import print_table

    rows = [[name, *_describe(env)] for name, env in WORLDS.items()]
    header = ["environment", "agents", "observations", "actions", "arguments"]
    print_table(header, rows, ["arguments", "actions", "observations"])


def _describe(env: Any) -> list[str]:
    """Returns the agents by role, the sizes of their observations and actions, and the arguments of an environment class."""
    from counterpoint.core.spaces import Discrete

    spec = env().spec
    roles = {role: spec.roles.count(role) for role in spec.roles}
    first = [spec.roles.index(role) for role in roles]
    spaces = [spec.action_spaces[i] for i in first]
    shapes = [
        "×".join(map(str, s.heads)) if isinstance(s, Discrete) else f"{s.size} in [{s.low:g}, {s.high:g}]" for s in spaces
    ]
    return [
        ", ".join(f"{count} {role}" if count > 1 else role for role, count in roles.items()),
        ", ".join(str(spec.obs_sizes[i]) for i in first),
        ", ".join(shapes),
        ", ".join(f"{field.name}={field.default}" for field in dataclasses.fields(env)),
    ]
