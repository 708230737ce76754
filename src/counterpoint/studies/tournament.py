"""Tournaments: every run's team against every other run's opposing team, with Elo ratings.

In a world with two teams, row i of the cross-play matrix plays the first team with the policy of run i, and column j plays the
other with that of run j. All cells start from the same positions. Elo ratings are the maximum-likelihood fit of a
Bradley-Terry model to all episodes at once, so they do not depend on an order. A team wins an episode if its mean return less
that of the other team is above the median of the whole tournament: games of two teams are rarely symmetric, so zero would be
an arbitrary border.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from counterpoint import config as configs
from counterpoint.core.errors import UsageError
from counterpoint.core.types import Environment
from counterpoint.envs.against import TeamPolicy
from counterpoint.runs import open_run, stats
from counterpoint.runs.files import make_folder, write_whole
from counterpoint.runs.folder import find
from counterpoint.runs.tables import markdown_table, write_csv
from counterpoint.training.evaluate import Episodes, evaluator
from counterpoint.training.opponents import Source, frozen_teams, joint, load_team, open_export, settings_of, source_of
from counterpoint.viz.plots import save_figure

BASE, SCALE = 1500.0, 400.0
"""The mean Elo rating, and how many points make odds of ten to one."""


class Player(NamedTuple):
    """A run in a tournament: the policies of its seeds for each team that it trained."""

    name: str
    teams: dict[str, list[TeamPolicy]]


class Value(NamedTuple):
    """A mean with its 95 % interval: over seeds if there are several, otherwise over episodes."""

    mean: float
    low: float
    high: float


class Cell(NamedTuple):
    """The episodes of one pair."""

    row: str
    column: str
    returns: dict[str, Value]
    """The return of one agent of each team."""
    metrics: dict[str, Value]
    episodes: int
    margins: list[Float[np.ndarray, " E"]]
    """The row's mean return less the column's, by episode, for each pair of seeds."""


class Rating(NamedTuple):
    """The Elo rating of a run's team."""

    player: str
    team: str
    elo: float
    low: float
    high: float


class Tournament(NamedTuple):
    """What `tournament` found, and the files that it wrote."""

    teams: tuple[str, str]
    """The team of the rows and that of the columns."""
    cells: list[Cell]
    ratings: list[Rating]
    files: list[Path]


def tournament(
    runs: Sequence[Any],
    episodes: int = 1000,
    seed: int = 0,
    out: str | Path = "tournament",
    env: str = "",
    trust: bool = False,
) -> Tournament:
    """Plays every run's teams against every other's and writes tables and a heat map to the folder `out`.

    A run is a folder or its name, with @best or @12000 (episodes) for another moment and #2 for one seed alone; exported
    teams and functions of Python files may take part beside at least one run. TEAM= before a player lets it play that team
    alone; a function needs it, and the others otherwise play all teams that they have. `env` is the new place of the
    environment. Runs that name code and were not made by you on this machine need `trust`.
    """
    if len(runs) < 2:
        raise UsageError(f"a tournament needs at least two runs, not {len(runs)}.")
    if episodes < 2:
        raise UsageError(f"--episodes must be at least 2, not {episodes}.")
    make_folder(out, "--out")
    texts = [str(getattr(run, "path", run)) for run in runs]
    world = open_world(texts, env, trust)
    rows, columns = two_teams(world)
    players = [player_of(text, world, trust) for text in texts]
    for team in (rows, columns):
        if not any(team in player.teams for player in players):
            raise UsageError(f"nobody here plays {team}: name a run that trained it, or another policy for it.")
    cells = cross_play(world, (rows, columns), players, players, episodes, seed)
    ratings = rated((rows, columns), cells)
    result = Tournament((rows, columns), cells, ratings, [])
    return result._replace(files=write(result, Path(out)))


def open_world(texts: Sequence[str], env: str = "", trust: bool = False) -> Environment:
    """Returns the environment of the first run among the players, whole."""
    for text in texts:
        source = source_of(entry_of(text)[1])
        if source.kind == "run":
            config = settings_of(open_run(source.place), trust)
            config = configs.override(config, env=env) if env else config
            world = config.world.build()
            if world.compiled is None:
                raise UsageError(f"{world.name} is stepped by Python, and tournaments need a compiled environment.")
            return world
    raise UsageError("name at least one run: its environment is the one that is played.")


def two_teams(world: Environment) -> tuple[str, str]:
    """Returns the two teams of a world, adversaries first."""
    teams = sorted(set(world.spec.teams))
    if len(teams) != 2:
        raise UsageError(f"{world.name} has the teams {', '.join(teams)}: a tournament needs exactly two.")
    return teams[0], teams[1]


def player_of(text: str, world: Environment, trust: bool = False) -> Player:
    """Returns a player with the policies of all its seeds, for each team that it has, or for the one that `text` names."""
    only, place = entry_of(text)
    source, known = source_of(place), sorted(set(world.spec.teams))
    if only and only not in known:
        raise UsageError(f"{text} names no team here: the teams are {', '.join(known)}.")
    count, teams = 1, [only] if only else known
    if source.kind == "run":
        config = settings_of(open_run(source.place), trust)
        count, frozen = config.training.num_seeds, frozen_teams(config)
        teams = [only] if only else [team for team in known if team not in frozen]
    elif source.kind == "export":
        teams = [only] if only else teams_of_export(place, world)
    elif not only:
        ways = " or ".join(f"{team}={place}" for team in known)
        raise UsageError(f"{place} does not say which team it plays: write {ways}.")
    chosen = range(count) if "#" not in place else [source.seed_index]
    return Player(
        text, {team: [load_team(Source(source.place, source.at, k), world, team, trust) for k in chosen] for team in teams}
    )


def entry_of(text: str) -> tuple[str, str]:
    """Returns the team that TEAM=PLACE names and the place; the team is empty if `text` names none."""
    team, sign, place = text.partition("=")
    if not (sign and team and place) or {"/", ":"} & set(team) or (find(source_of(text).place) / "config.json").exists():
        return "", text  # a run's own name may have such a form
    return team, place


def teams_of_export(place: str, world: Environment) -> list[str]:
    """Returns the teams all of whose agents an export has."""
    file, policy = open_export(Path(source_of(place).place))
    there = zip(world.spec.agents, world.spec.teams, strict=True)
    missing = {team for agent, team in there if agent not in policy.agents}
    if teams := sorted(set(world.spec.teams) - missing):
        return teams
    raise UsageError(f"{file} has no whole team of {world.name}: its agents are {', '.join(policy.agents)}.")


class Arena:
    """Plays pairs of policies; pairs of the same kinds share a compiled program."""

    def __init__(self, world: Environment) -> None:
        self.world = world
        self._programs: dict[Any, Any] = {}

    def play(self, policies: Sequence[TeamPolicy], episodes: int, seed: int) -> Episodes:
        """Returns whole episodes of these policies together."""
        key = tuple((policy.agents, policy.kind or id(policy)) for policy in policies)
        if key not in self._programs:
            algo = joint(self.world.spec, policies)
            # The policies themselves are kept as well: an id must not be given to another object.
            self._programs[key] = (evaluator(self.world, algo, lambda policy: None), tuple(policies))
        return self._programs[key][0](tuple(policy.parameters for policy in policies), episodes, seed)


def cross_play(
    world: Environment,
    teams: tuple[str, str],
    rows: Sequence[Player],
    columns: Sequence[Player],
    episodes: int,
    seed: int = 0,
    arena: Arena | None = None,
) -> list[Cell]:
    """Returns a cell for every row and column; several seeds of both meet in pairs."""
    arena, cells = arena or Arena(world), []
    for row in rows:
        for column in columns:
            if teams[0] not in row.teams or teams[1] not in column.teams:
                continue
            first, second = row.teams[teams[0]], column.teams[teams[1]]
            pairs = max(len(first), len(second))
            met = [(first[k % len(first)], second[k % len(second)]) for k in range(pairs)]
            played = [arena.play(pair, max(2, episodes // pairs), seed) for pair in met]
            cells.append(cell_of(world, teams, row.name, column.name, played))
    return cells


def cell_of(world: Environment, teams: tuple[str, str], row: str, column: str, played: Sequence[Episodes]) -> Cell:
    """Returns the summary of one pair's episodes, [seeds] of them."""
    spec = world.spec
    each = {team: np.array([own == team for own in spec.teams]) for team in teams}
    returns = {team: [np.asarray(part.returns)[:, rows].mean(axis=1) for part in played] for team, rows in each.items()}
    metrics = {name: [np.asarray(part.metrics[name], float) for part in played] for name in played[0].metrics}
    margins = [a - b for a, b in zip(returns[teams[0]], returns[teams[1]], strict=True)]
    values = {team: value_of(parts) for team, parts in returns.items()}
    measured = {name: value_of(parts) for name, parts in metrics.items()}
    return Cell(row, column, values, measured, sum(map(len, margins)), margins)


def value_of(parts: Sequence[np.ndarray]) -> Value:
    """Returns the mean of seeds' episodes with its interval."""
    means = [float(np.mean(part)) for part in parts]
    low, high = stats.bootstrap_interval(means if len(means) > 1 else parts[0], resamples=1000)
    return Value(float(np.mean(means)), low, high)


# --- Elo.


def elo(wins: Float[np.ndarray, "P P"], prior: float = 1.0) -> Float[np.ndarray, " P"]:
    """Returns the ratings that make the results most likely; wins[i, j] counts the wins of i over j, a draw as a half each.

    P(i beats j) = 1 / (1 + 10^((R_j − R_i) / 400)). `prior` imaginary draws between all who met keep an unbeaten player finite.
    """
    wins = np.asarray(wins, float)
    met = (wins + wins.T) > 0
    wins = wins + prior / 2 * met
    games, total = wins + wins.T, wins.sum(axis=1)
    strength = np.ones(len(wins))
    for _ in range(10_000):  # Hunter (2004): each step increases the likelihood
        new = total / np.maximum((games / (strength[:, None] + strength[None, :])).sum(axis=1), 1e-300)
        new = new / np.exp(np.mean(np.log(np.maximum(new, 1e-300))))
        if np.max(np.abs(np.log(np.maximum(new, 1e-300) / strength))) < 1e-10:
            break
        strength = np.maximum(new, 1e-300)
    return BASE + SCALE * np.log10(strength)


def rated(teams: tuple[str, str], cells: Sequence[Cell], resamples: int = 200) -> list[Rating]:
    """Returns the rating of every run's team, with the interval over resampled seeds, or episodes of pairs of single seeds."""
    players = list(dict.fromkeys([(cell.row, teams[0]) for cell in cells] + [(cell.column, teams[1]) for cell in cells]))
    border = float(np.median(np.concatenate([part for cell in cells for part in cell.margins])))
    scores = [[(np.sign(part - border) + 1) / 2 for part in cell.margins] for cell in cells]

    def ratings(samples: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
        wins = np.zeros((len(players), len(players)))
        for cell, sample in zip(cells, samples, strict=True):
            i, j = players.index((cell.row, teams[0])), players.index((cell.column, teams[1]))
            won, played = sum(map(np.sum, sample)), sum(map(len, sample))
            wins[i, j] += won
            wins[j, i] += played - won
        return elo(wins)

    best, rng = ratings(scores), np.random.default_rng(0)
    drawn = np.array([ratings(resampled(rng, scores)) for _ in range(resamples)])
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    return [Rating(*player, float(best[i]), float(low[i]), float(high[i])) for i, player in enumerate(players)]


def resampled(rng: np.random.Generator, scores: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """Returns a bootstrap sample of every cell's scores, [cells][pairs of seeds].

    A cell of several pairs is drawn by pairs, and all cells draw the same ones: pair k of every cell has seed k of its players,
    so these pairs are not independent of each other. A cell of a single pair is drawn by episodes.
    """
    most = max(map(len, scores))
    chosen = {count: rng.integers(count, size=count) for count in range(2, most + 1)}
    return [
        [parts[k] for k in chosen[len(parts)]] if len(parts) > 1 else [rng.choice(parts[0], len(parts[0]))] for parts in scores
    ]


# --- Files.


def matrix(result: Tournament, team: str) -> tuple[list[str], list[list[Any]]]:
    """Returns the cross-play matrix of one team's returns as a table."""
    rows, columns = (list(dict.fromkeys(getattr(cell, side) for cell in result.cells)) for side in ("row", "column"))
    found = {(cell.row, cell.column): cell.returns[team] for cell in result.cells}
    header = [f"{result.teams[0]} \\ {result.teams[1]}", *columns]
    return header, [[row, *(shown(found.get((row, column))) for column in columns)] for row in rows]


def shown(value: Value | None) -> str:
    """Returns a value with its interval as text."""
    return "–" if value is None else f"{value.mean:.2f} [{value.low:.2f}, {value.high:.2f}]"


RATING_HEADER = ["run", "team", "Elo", "95 %"]


def rating_rows(result: Tournament) -> list[list[str]]:
    """Returns the ratings as a table, the best of each team first."""
    ordered = sorted(result.ratings, key=lambda rating: (rating.team, -rating.elo))
    return [[r.player, r.team, f"{r.elo:.0f}", f"{r.low:.0f} … {r.high:.0f}"] for r in ordered]


def metric_table(result: Tournament) -> tuple[list[str], list[list[str]]]:
    """Returns the world's own metrics of every pair as a table."""
    names = list(result.cells[0].metrics)
    rows = [[cell.row, cell.column, *(shown(cell.metrics[name]) for name in names)] for cell in result.cells]
    return [*result.teams, *names], rows


def write(result: Tournament, folder: Path) -> list[Path]:
    """Writes the tables and the heat map, and returns their files."""
    cells, ratings, text, picture = (folder / name for name in ("cells.csv", "elo.csv", "tournament.md", "heatmap.png"))
    rows = [
        [cell.row, cell.column, name, *value, cell.episodes]
        for cell in result.cells
        for name, value in [*((f"return of {team}", v) for team, v in cell.returns.items()), *cell.metrics.items()]
    ]
    write_csv(cells, [*result.teams, "metric", "mean", "low", "high", "episodes"], rows)
    write_csv(ratings, ["run", "team", "elo", "low", "high"], [list(rating) for rating in result.ratings])
    parts = [f"Return of one agent of {team}\n\n{markdown_table(*matrix(result, team))}" for team in result.teams]
    if result.cells[0].metrics:
        parts.append(f"Metrics of the world\n\n{markdown_table(*metric_table(result))}")
    parts.append(f"Elo\n\n{markdown_table(RATING_HEADER, rating_rows(result))}")
    write_whole(text, lambda draft: draft.write_text("\n".join(parts), encoding="utf-8"))
    heat_map(result, picture)
    return [text, cells, ratings, picture]


def heat_map(result: Tournament, path: Path) -> None:
    """Draws the returns of the team of the rows."""
    rows, columns = (list(dict.fromkeys(getattr(cell, side) for cell in result.cells)) for side in ("row", "column"))
    values = np.full((len(rows), len(columns)), np.nan)
    for cell in result.cells:
        values[rows.index(cell.row), columns.index(cell.column)] = cell.returns[result.teams[0]].mean

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        image = axes.imshow(values, cmap="RdBu_r")
        axes.set_xticks(range(len(columns)), [Path(name).name for name in columns], rotation=30, ha="right")
        axes.set_yticks(range(len(rows)), [Path(name).name for name in rows])
        axes.set(xlabel=result.teams[1], ylabel=result.teams[0], title=f"return of one agent of {result.teams[0]}")
        axes.grid(visible=False)
        middle = np.nanmean(values)
        spread = max(float(np.nanmax(np.abs(values - middle))), 1e-9)
        for (i, j), value in np.ndenumerate(values):
            if np.isfinite(value):
                colour = "white" if abs(value - middle) > 0.6 * spread else "black"
                axes.text(j, i, f"{value:.1f}", ha="center", va="center", color=colour, size=8)
        figure.colorbar(image, ax=axes, shrink=0.8)

    save_figure((2.4 + 0.9 * len(columns), 1.8 + 0.6 * len(rows)), path, 160, draw)
