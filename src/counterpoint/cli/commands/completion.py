"""`counterpoint completion`."""

from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional, arg

from counterpoint.cli.registry import command


@command("Training")
def completion(shell: Annotated[Positional[Literal["bash", "zsh", "fish"]], arg(metavar="bash|zsh|fish")]) -> None:
    """Print a script that completes commands and options with the tab key.

    Load it in your shell's start-up file: `eval "$(counterpoint completion bash)"` in ~/.bashrc, the same with zsh in ~/.zshrc
    after compinit, or `counterpoint completion fish | source` in ~/.config/fish/config.fish.

    Args:
        shell: Shell that will read the script.
    """
    from counterpoint.cli.main import COMMANDS

    targets = {name: _train_settings() if entry.parses_itself else entry.function for name, entry in COMMANDS.items()}
    try:
        tyro.extras.subcommand_cli_from_dict(
            targets,
            prog="counterpoint",
            args=["--tyro-write-completion", shell, "-"],
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
        )
    except SystemExit as done:  # tyro exits when the script is printed
        if done.code:
            raise


def _train_settings() -> Any:
    """Returns the settings of `counterpoint train`, which parses its words itself."""
    from counterpoint import config as configs
    from counterpoint.cli.commands.train import settings_class

    return settings_class(configs.Config())
