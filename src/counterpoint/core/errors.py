"""Exceptions that end a command with a sentence."""


class UsageError(ValueError):
    """Bad input: one sentence that names the value and the fix. The command line prints it and exits with 2."""


class Diverged(Exception):
    """A parameter or a reward is no longer a finite number; what is saved still is. The command line exits with 3."""


class Damage(UserWarning):
    """A file of a run is damaged; the text names it and says what is used instead. The command line prints it as a sentence."""
