"""Words of the command line into arguments, by tyro; what it complains of is one sentence, like every other refusal."""

import contextlib
import functools
import io
import re
from collections.abc import Callable
from typing import Any

import tyro

from counterpoint.core.errors import UsageError


def parse(target: Callable[..., Any], words: list[str], prog: str, **options: Any) -> Any:
    """`tyro.cli`, refusing in one sentence."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(target, args=words, prog=prog, **options)
    except SystemExit as end:
        if not end.code:
            raise
        raise UsageError(f"{_sentence(complaint.getvalue())}; {prog} --help lists all options.") from None


def call(function: Callable[..., Any], words: list[str], prog: str) -> None:
    """Calls a function with the arguments that the words give."""

    @functools.wraps(function)
    def later(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return functools.partial(function, *args, **kwargs)

    parse(later, words, prog, config=(tyro.conf.FlagCreatePairsOff,))()


def _sentence(box: str) -> str:
    """The first part of tyro's box of text, drawn in Unicode or ASCII, and what it supposes was meant."""
    lines = "\n".join(line.strip("│ ") for line in box.splitlines())
    parts = [part.split() for part in re.split(r"^(?:[╭╰].*|[─-]{3,})$", lines, flags=re.MULTILINE)][1:] or [[]]
    said = " ".join(parts[0]).rstrip(".:") or "these words are not understood"
    meant = [word for part in parts[1:] if part[:1] == ["Perhaps"] for word in part if word.startswith("--")]
    return said[:1].lower() + said[1:] + (f"; perhaps you meant {meant[0]}" if meant else "")
