"""`counterpoint presets`."""

import dataclasses
from typing import Any

from counterpoint.cli.registry import command


@command("Training")
def presets() -> None:
    """List the presets that `counterpoint train --preset` accepts, with the options that they set."""
    from counterpoint import config as configs
    from counterpoint.presets import PRESETS

    plain = configs.Config()
    for name, config in PRESETS.items():
        family = configs.override(plain, algorithm=config.algorithm)
        base = _flat(configs.to_dict(dataclasses.replace(family, algorithm=plain.algorithm)))
        settings = _flat(configs.to_dict(config))
        changes = [f"--{key.replace('_', '-')} {value}" for key, value in settings.items() if value != base[key]]
        print(f"{name}\n    {' '.join(changes)}")


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns all settings by name, without their groups."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= value if isinstance(value, dict) else {name: value}
    return flat
