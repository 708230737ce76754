"""What is wrong with a run, and what to do about it, as the page shows it."""

from dataclasses import asdict

from counterpoint.core.errors import UsageError
from counterpoint.runs import Run
from counterpoint.view.catalogue import Item, trouble

SENTENCES = {
    "damaged": ("A file of the run is damaged.", "Check every file: counterpoint verify RUN."),
    "silent": (
        "The run is held by a process, but has written nothing for a long time.",
        "Look whether its process still works; if it hangs, end it and continue with counterpoint resume RUN.",
    ),
    "diverged": (
        "The returns are no longer finite numbers.",
        "Resume from the last checkpoint with a smaller --lr or --clip.",
    ),
}
"""By the word of the list: what it means, and what to do."""


def advice(run: Run, item: Item) -> list[dict[str, str]]:
    """Returns what the list noticed and what `counterpoint why` finds: name, words, evidence and cure of each.

    What both found is said in the words of `why`, which has evidence.
    """
    found = diagnosed(run)
    known = {finding["name"] for finding in found}
    noticed = [
        {
            "name": word,
            "words": SENTENCES[word][0],
            "evidence": item.problem if word == "damaged" else "",
            "cure": SENTENCES[word][1],
        }
        for word in trouble(item)
        if word not in known
    ]
    return [*noticed, *found]


def diagnosed(run: Run) -> list[dict[str, str]]:
    """Returns what `counterpoint why` finds in the reports: playing, which shows more, takes longer than a page may."""
    from counterpoint.studies.why import diagnose  # brings JAX, which the list does not need

    try:
        findings = diagnose(run, play=False)
    except UsageError:  # its settings or reports cannot be read, which the list says
        return []
    return [asdict(finding) for finding in findings]
