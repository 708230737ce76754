"""The stage of any compiled run: the page of `counterpoint share` with every policy that the run kept."""

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from counterpoint.core.errors import UsageError
from counterpoint.policies.policy import Policy, load, load_history
from counterpoint.runs import Run
from counterpoint.view.catalogue import Remembered
from counterpoint.view.share import About, check_rival, compiled, label_of, packed, packed_rivals, prepared, untrained

MOST_STAGES = 8
"""Translated worlds and teams that stay in memory."""
MOST_RIVALS = 5
"""Other runs whose policies can take a team's place."""


class Stage(NamedTuple):
    """A page, the policy that says what it may do, and a sentence about what it cannot show."""

    html: str
    allowed: str
    note: str


class Stages:
    """Builds the stages of runs, one at a time: translating takes seconds and both cores."""

    def __init__(self, trust: bool = False) -> None:
        self._trust = trust
        self._pages = Remembered(MOST_STAGES)
        self._lock = threading.Lock()

    def stage(self, run: Run, seed_index: int, others: Sequence[Run] = ()) -> Stage:
        """Returns the stage of a run. Runs among `others` whose policies cannot act in its world are left out, with a note."""
        with self._lock:
            moments = load_history(run, seed_index, trust=self._trust)
            team = moments[-1]
            accepted, refused = self._rivals(team, others)
            rivals = [(other.name, policy) for other, policy in accepted]
            about = About(run.name, str(run.config.get("algorithm", "")))
            key = (seed_index, *((each.path, _changed(each)) for each in (run, *(other for other, _ in accepted))))
            pages, note = self._pages.get(key, lambda: prepared(team, rivals, about))
        own = [packed(moment, label_of(moment), "t0") for moment in self._kept(run, seed_index, moments)]
        html = pages.text([*own, *packed_rivals(rivals)], list(range(len(own))))
        allowed = f"{pages.allowed()}; frame-ancestors 'self'"
        return Stage(html, allowed, " ".join(filter(None, [f"{note[:1].upper()}{note[1:]}." if note else "", *refused])))

    def newest(self, run: Run, seed_index: int) -> dict[str, Any]:
        """Returns the last policy of a run, as its stage reads it."""
        with self._lock:
            team = load(run, seed_index, trust=self._trust)
        return packed(team, label_of(team), "t0")

    def _rivals(self, team: Policy, others: Sequence[Run]) -> tuple[list[tuple[Run, Policy]], list[str]]:
        """Returns the runs that can take a team's place with their policies, and sentences about those that cannot."""
        rivals, refused = [], []
        for other in others[:MOST_RIVALS]:
            try:
                rival = load(other, trust=self._trust)
                check_rival(compiled(team).spec, other.name, compiled(rival).spec)
                rivals.append((other, rival))
            except UsageError as error:
                refused.append(f"{other.name} cannot take a team's place here: {error}")
        if left_out := ", ".join(other.name for other in others[MOST_RIVALS:]):
            refused.append(f"A stage offers {MOST_RIVALS} other runs, so it leaves out {left_out}: choose fewer runs.")
        return rivals, refused

    def _kept(self, run: Run, seed_index: int, moments: Sequence[Policy]) -> list[Policy]:
        """Returns the policies in the order of training: untrained, those kept along the way, the best one, the last one."""
        found = [untrained(moments[-1]), *moments]
        try:
            best = load(run, seed_index, "best", trust=self._trust)
        except UsageError:  # the run has saved no evaluation yet
            return found
        episodes = [int(moment.about.get("episodes", 0)) for moment in found]
        at = int(best.about.get("episodes", 0))
        if at in episodes:
            return found
        place = sum(count < at for count in episodes)
        return [*found[:place], best, *found[place:]]


def _changed(run: Run) -> int:
    """Returns when the settings of a run changed last."""
    return (run.path / "config.json").stat().st_mtime_ns
