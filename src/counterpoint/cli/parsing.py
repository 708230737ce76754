"""Words of the command line become arguments, by tyro; a refusal is one sentence, like every other error.

tyro reports what it refuses as an event with data (the argument, the value, the choices) before it draws its box of text. The
sentences here are made from that data. The events are not part of tyro's public interface: if a version lacks them, or adds
one that is unknown here, its own text is printed instead, with the same exit code.
"""

import contextlib
import dataclasses
import difflib
import functools
import re
import sys
import typing
from collections.abc import Callable
from typing import Annotated, Any

import tyro

from counterpoint.core.errors import UsageError

try:
    from tyro import _errors as events
except ImportError:  # before tyro 1.0.16
    events = None

RunFolder = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
"""A positional argument that names a run's folder."""
_POSITIONAL = typing.get_args(tyro.conf.Positional[str])[1]


def parse(
    target: Callable[..., Any], words: list[str], prog: str, hint: Callable[[str], str] = lambda name: "", **options: Any
) -> Any:
    """Calls `tyro.cli`, but raises UsageError with one sentence if it refuses the words.

    `hint` says of the name of an unknown option where it is known, or nothing.
    """

    def refuse(event: Any) -> None:
        if own := _own_error():
            raise own
        if sentence := _sentence(event, target, hint):
            raise UsageError(f"{sentence}; {prog} --help lists all options.")

    hook = getattr(events, "on_parse_error", None)
    with hook(refuse) if hook else contextlib.nullcontext():
        return tyro.cli(target, args=_whole_numbers(words, target), prog=prog, **options)


def _whole_numbers(words: list[str], target: Callable[..., Any]) -> list[str]:
    """Returns the words with whole numbers in float notation, such as 1e4, written out where an option takes an integer."""
    integers = {name for name, kind in _options(target).items() if kind is int}
    plain: list[str] = []
    option = ""
    for word in words:
        if word.startswith("--"):
            option, sign, value = word.partition("=")
            plain.append(f"{option}={whole(value)}" if sign and _name(option) in integers else word)
            option = "" if sign else option
        else:
            plain.append(whole(word) if _name(option) in integers else word)
            option = ""
    return plain


def _name(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def whole(text: str) -> str:
    """Returns 1e4 as 10000, and everything else as it is."""
    match = re.fullmatch(r"\+?(\d+)(?:\.(\d*))?[eE]\+?(\d{1,3})", text)
    if not match:
        return text
    digits, decimals, exponent = match[1], (match[2] or "").rstrip("0"), int(match[3])
    return text if len(decimals) > exponent else str(int(digits + decimals.ljust(exponent, "0")))


def call(function: Callable[..., Any], words: list[str], prog: str) -> None:
    """Calls a function with the arguments that the words specify."""

    @functools.wraps(function)
    def later(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return functools.partial(function, *args, **kwargs)

    parse(later, words, prog, config=(tyro.conf.FlagCreatePairsOff,))()


def _own_error() -> UsageError | None:
    """Returns the UsageError with which a settings class refused its values, if that is what tyro is reporting."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, UsageError):
        error = error.__cause__ or error.__context__
    return error


def _sentence(event: Any, target: Callable[..., Any], hint: Callable[[str], str]) -> str:
    """Returns a sentence for an event of tyro, or nothing if the event is unknown."""
    match type(event).__name__:
        case "UnrecognizedArgs":
            return f"unrecognized options: {', '.join(event.tokens)}{_suggestion(event.tokens, target, hint)}"
        case "InvalidChoice":
            name = event.argument.display_name()
            return f"invalid choice '{event.value}' for argument '{name}': expected one of {', '.join(event.choices)}"
        case "BadValue" if event.reason == "too_few_values":
            return f"missing value for argument '{event.argument.display_name()}': expected {_count(event.argument)}"
        case "MissingArgs":
            missing = [f"'{item.arg.display_name()}' ({_description(item.arg)})" for item in event.missing_arguments]
            return f"missing argument{'s' * (len(missing) > 1)} {', '.join(missing)}"
        case "InstantiationFailure":
            where = f"error parsing {event.argument.display_name()}: " if event.argument else ""
            return where + str(event.message).rstrip(".")
    return ""


def _count(argument: Any) -> str:
    number = argument.lowered.nargs
    return "1 value" if number == 1 else f"{number} values"


def _description(argument: Any) -> str:
    """Returns an argument's help as a clause."""
    text = " ".join((argument.field.helptext or "required").split()).rstrip(".")
    return text[:1].lower() + text[1:]


def _suggestion(tokens: list[str], target: Callable[..., Any], hint: Callable[[str], str]) -> str:
    """Returns where an unknown option is known, or the option that the user may have meant."""
    known = [f"--{name.rstrip('_').replace('_', '-')}" for name in _options(target)]
    for option in (token.partition("=")[0] for token in tokens if token.startswith("--")):
        if elsewhere := hint(_name(option)):
            return f"; {elsewhere}"
        if close := difflib.get_close_matches(option, known, 1):
            return f"; perhaps you meant {close[0]}"
    return ""


def _options(target: Callable[..., Any]) -> dict[str, Any]:
    """Returns the options of a function or a dataclass with their types, without groups and positional arguments."""
    found: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(target, include_extras=True).items():
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            found |= _options(hint)
        elif name != "return" and _POSITIONAL not in typing.get_args(hint):
            found[name] = hint
    return found
