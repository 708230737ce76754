"""Whether the code that a run names may be executed: a run folder is data, and anybody may have written it.

A run can name code: an environment (`--env`), an algorithm, a network or an opponent of the user's own. The run is signed when
it is made, with a key that only this user of this machine has. A run without such a signature comes from somewhere else, and
what it names is executed only if the user says so.
"""

import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from counterpoint.core.checks import flag, shown
from counterpoint.core.errors import UsageError
from counterpoint.runs import files

SIGNATURE, SOURCES = "signature", "sources"
"""Entries of config.json: the signature, and the SHA-256 of each file that the settings name."""
DATA = {
    *("code", "straggle", "ray_address", "scenario", "scenario_args", "teams", "preset", "counterpoint", "changes"),
    *("exp_name", "save_dir", "load_dir", "plots_dir", "benchmark_dir", SOURCES),
}
"""Settings that never name code, whatever their text."""
KEY_BYTES = 32


def named_code(config: Mapping[str, Any]) -> dict[str, str]:
    """Returns the settings that name code: the environment of --env, and every text of the form place:name."""
    found: dict[str, str] = {}
    for name, text in _code(config):
        found[name] = f"{found[name]} {text}" if name in found else text
    return found


def require(run: Path, config: Mapping[str, Any], given: Collection[str] = (), trusted: bool = False) -> None:
    """Refuses a run whose settings name code, unless the user trusts it, passes the code again (`given`) or made the run."""
    code = {name: text for name, text in named_code(config).items() if name not in given}
    if not code or trusted or is_signed(config):
        return
    named = ", ".join(f"{flag(name)} {shown(text)}" for name, text in code.items())
    again = "pass --env again, or " if code.keys() == {"env"} else ""
    raise UsageError(
        f"{run} would execute code ({named}), and you did not make this run on this machine: {again}add --trust if you trust"
        " whoever made it."
    )


def signed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of config.json with a signature, if it names code and this user has a key or can make one."""
    plain = {name: value for name, value in config.items() if name not in (SIGNATURE, SOURCES)}
    if not named_code(plain) or (key := _key(make=True)) is None:
        return plain
    facts = plain | {SOURCES: {str(file): files.digest_of_file(file) for file in _sources(plain) if file.is_file()}}
    return facts | {SIGNATURE: _signature(key, facts)}


def is_signed(config: Mapping[str, Any]) -> bool:
    """Returns whether this user made the run on this machine, and nobody else has changed what it names since."""
    key, found = _key(make=False), config.get(SIGNATURE)
    facts = {name: value for name, value in config.items() if name not in (SIGNATURE, files.SEAL)}
    if key is None or not isinstance(found, str) or not hmac.compare_digest(found.encode(), _signature(key, facts).encode()):
        return False
    known, present = config.get(SOURCES) or {}, [file for file in _sources(config) if file.is_file()]
    return all(_is_own(file) or files.digest_of_file(file) == known.get(str(file)) for file in present)


def key_path() -> Path:
    """Returns the place of this user's key."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "counterpoint" / "key"


def _code(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields every text that names code, with the name of its setting."""
    for name, text in _texts(config):
        if name not in DATA and text and (name == "env" or ":" in text):
            yield name, text


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yields every text among the settings with the name of its setting, however deep it is."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, name)


def _sources(config: Mapping[str, Any]) -> list[Path]:
    """Returns the Python files that the settings name."""
    # --freeze has the form TEAM=file.py:function.
    texts = [text.partition("=")[2] if name == "freeze" else text for name, text in _code(config)]
    places = [text.rpartition(":")[0] for text in texts]
    return [Path(place) for place in places if place.endswith(".py") and "\0" not in place]


def _is_own(file: Path) -> bool:
    """Returns whether a file is this user's, and nobody else may write to it: then its changes are this user's too."""
    found = file.stat()
    if os.name != "posix" or found.st_uid != os.getuid() or found.st_mode & stat.S_IWOTH:
        return False
    return not found.st_mode & stat.S_IWGRP or _is_private(found.st_gid)


def _is_private(group: int) -> bool:
    """Returns whether this user is the only member of a group, as many systems have one for each user."""
    try:
        import grp
        import pwd

        user, members = pwd.getpwuid(os.getuid()), grp.getgrgid(group).gr_mem
        others = {each.pw_name for each in pwd.getpwall() if each.pw_gid == group} | set(members)
    except (ImportError, KeyError, OSError):
        return False
    return group == user.pw_gid and others <= {user.pw_name}


def _signature(key: bytes, facts: Mapping[str, Any]) -> str:
    text = json.dumps(facts, separators=(",", ":"), sort_keys=True)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _key(make: bool) -> bytes | None:
    """Returns this user's key; makes one if need be and possible. A file that others may change is not a key."""
    path = key_path()
    try:
        if make and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft = path.with_name(f".key.{os.getpid()}.{secrets.token_hex(4)}")
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(handle, secrets.token_bytes(KEY_BYTES))
                os.fsync(handle)
                os.link(draft, path)  # appears whole; if another process was faster, its key counts
            except FileExistsError:
                pass
            finally:
                os.close(handle)
                draft.unlink()
        key = path.read_bytes()
        found = path.stat()
    except OSError:
        return None
    safe = os.name != "posix" or (found.st_uid == os.getuid() and not found.st_mode & (stat.S_IRWXG | stat.S_IRWXO))
    return key if len(key) == KEY_BYTES and safe else None
