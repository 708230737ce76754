"""The one exception that is the user's to mend."""


class UsageError(ValueError):
    """Bad input: one sentence that names the value and the fix. The command line prints it and exits with 2."""
