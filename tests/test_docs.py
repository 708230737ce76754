"""What newcomers read is true: snippets run, commands parse, files and names exist, numbers follow from the code."""

import ast
import functools
import importlib
import inspect
import itertools
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import counterpoint
from counterpoint import config as configs
from counterpoint import presets
from counterpoint.algos.base import entries
from counterpoint.cli import main as cli
from counterpoint.envs import WORLDS, make
from counterpoint.training.evaluate import reductions_of
from counterpoint.training.replay import example, row_size

ROOT = Path(__file__).parent.parent
ADRS = sorted(ROOT.glob("docs/adr/*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md"))]
TEXT = {str(page.relative_to(ROOT)): page.read_text() for page in PAGES}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_BLOCK = re.compile(r'^```python title="([\w.]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
"""A block that readers save as a file."""
SPAN = re.compile(r"`([^`\n]+)`")
TINY = "num_episodes=40, batch_size=8, max_episode_len=5, eval_episodes=0, num_units=8, devices=1"
OTHERS_FLAGS = {
    "--exclude-editable",
    "--config",
    "--env-config",
    "--take",
    "--short",
    "--only",
    "--count",
    "--kinds",
    "--docs",
    "--from",
}
"""Flags of pip, of EPyMARL, and of the scripts that make the gallery and attack runs."""


def blocks(language: str) -> list[tuple[str, str]]:
    return [(name, body) for name, text in TEXT.items() for kind, body in BLOCK.findall(_plain(text)) if kind == language]


def _plain(text: str) -> str:
    """Returns a page without the blocks that are files."""
    return FILE_BLOCK.sub("", text)


def snippets() -> list[tuple[str, str]]:
    """Returns the Python programs of all pages: each block is one, but the blocks of a tutorial belong together."""
    programs = [(page, body) for page, body in blocks("python") if not page.startswith("docs/tutorials/")]
    # The page of the notebook is not here: test_notebook.py executes the notebook.
    tutorials: dict[str, str] = {}
    for page, body in blocks("python"):
        if page.startswith("docs/tutorials/") and page != "docs/tutorials/notebook.md":
            tutorials[page] = tutorials.get(page, "") + body
    return programs + list(tutorials.items())


def prose_spans() -> list[tuple[str, str]]:
    return [(name, span) for name, text in TEXT.items() for span in SPAN.findall(BLOCK.sub("", _plain(text)))]


def command_lines() -> list[str]:
    """Every documented command with its options, from blocks and from prose."""
    lines = [line.split("#")[0].strip() for _, body in blocks("") for line in body.splitlines()]
    written = [span for page, span in prose_spans() if page != "docs/reference/commands.md"]  # that page has its own test
    spans = [span for span in written if "…" not in span and "COMMAND" not in span]
    return sorted({line for line in lines + spans if line.startswith("counterpoint ")})


def run_main(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> int:
    """The exit code of the command line."""
    monkeypatch.setattr(sys, "argv", ["counterpoint", *words])
    try:
        cli.main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.mark.parametrize(("page", "snippet"), snippets(), ids=lambda value: value if value.endswith(".md") else "")
def test_snippets_run(page, snippet, tmp_path):
    if "counterpoint.grid(" in snippet:  # all algorithms take minutes, see the slow test
        snippet = with_algorithms(snippet, ["maddpg", "coma"])
    run_snippet(page, snippet, tmp_path)


@pytest.mark.slow
def test_the_paper_figure_takes_every_algorithm(tmp_path):
    (snippet,) = (body for page, body in snippets() if page == "docs/tutorials/paper-figure.md")
    out = run_snippet("docs/tutorials/paper-figure.md", snippet.replace("num_seeds=5", "num_seeds=2"), tmp_path)
    assert {name for name, entry in entries().items() if "discrete" in entry.actions} <= set(out.split())


def with_algorithms(snippet, names):
    """Returns the tutorial of the paper figure for these algorithms, one world and two seeds."""
    short = re.sub(r"^algorithms = .*$", f"algorithms = {names}", snippet, flags=re.MULTILINE)
    short = re.sub(r"^worlds = .*$", 'worlds = "simple"', short, flags=re.MULTILINE)
    assert short.count("num_seeds=5") == 1
    return short.replace("num_seeds=5", "num_seeds=2")


def run_snippet(page, snippet, tmp_path):
    """Runs a program of a page, with little training, and returns what it prints."""
    if "counterpoint.grid(" in snippet:
        assert snippet.count("num_episodes=25_000") == 1, "the test makes this setting tiny"
        few = "num_episodes=20, max_episode_len=5, eval_episodes=2, num_units=8, devices=1"
        snippet = snippet.replace("num_episodes=25_000", few)
    elif "counterpoint.train(" in snippet:
        length = re.compile(r'num_episodes=25_000|preset="[\w-]+"(?=\))')
        snippet, count = length.subn(lambda found: f"{found[0]}, {TINY}" if found[0][0] == "p" else TINY, snippet)
        assert count == 1, "the test makes this training tiny"
    if "examples/" in snippet:
        shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for name, text in FILE_BLOCK.findall(TEXT[page]):
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", snippet],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_snippets_and_commands():
    assert {page for page, _ in blocks("python")} >= {"README.md", "docs/worlds.md"}
    documented = {line.split()[1] for line in command_lines()}
    assert documented >= set(cli.COMMANDS)


@pytest.mark.parametrize("line", command_lines())
def test_commands_parse(line, monkeypatch, capsys):
    called = []

    def note(*args, **kwargs):
        called.append(args)
        return ""

    words = shlex.split(line)[1:]
    if words[0] not in ("train", "runs", "envs", "presets") and len(words) == 1:
        words.append("--help")  # named in prose, without its arguments
        called.append(words)
    monkeypatch.setattr("counterpoint.cli.commands.train.run_job", note)
    for name, command in cli.COMMANDS.items():
        if name != "train":  # it parses its own options
            stub = functools.wraps(command.function)(lambda *args, **kwargs: note(*args, **kwargs))
            monkeypatch.setitem(cli.COMMANDS, name, command._replace(function=stub))
    code = run_main(monkeypatch, words)
    assert code == 0, capsys.readouterr()
    assert called or "--help" in words, f"{line} did nothing"


def shell_steps() -> dict[str, list[str]]:
    """The commands of each tutorial that has some, in the order of the page."""
    steps: dict[str, list[str]] = {}
    for page, body in blocks(""):
        if page.startswith("docs/tutorials/"):
            steps.setdefault(page, []).extend(line for line in body.splitlines() if line.startswith("counterpoint "))
    return {page: lines for page, lines in steps.items() if lines}


SHORT = {
    "train": "--num-episodes 20 --max-episode-len 5 --eval-episodes 2 --devices 1",
    "play": "--episodes 1",
    "benchmark": "--benchmark-iters 50",
}
"""Options that make a command's work small; the last of two equal options counts."""


@pytest.mark.parametrize("page", shell_steps())
def test_the_shell_steps_of_tutorials_run(page, tmp_path):
    """One after another, as a reader types them; each file that `--out` names is there afterwards."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for name, text in FILE_BLOCK.findall(TEXT[page]):
        (tmp_path / name).write_text(text)
    for line in shell_steps()[page]:
        short = re.sub(r"--algorithm maddpg,\S+ --scenario \S+ --num-seeds 5", "--algorithm maddpg,coma --num-seeds 2", line)
        words = shlex.split(f"{short} {SHORT.get(line.split()[1], '')}")
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), line
        for option, value in itertools.pairwise(words):
            assert option != "--out" or (tmp_path / value).exists(), line


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_of_each_command(command, monkeypatch, capsys):
    assert run_main(monkeypatch, [command, "--help"]) == 0
    assert command in capsys.readouterr().out


def test_flags_exist():
    families = [configs.override(configs.Config(), algorithm=name) for name in entries()]
    names = {name for family in families for name in configs.homes_of(family)}
    known = {"--" + name.replace("_", "-") for name in names} | {"--help"} | OTHERS_FLAGS
    known |= {"--no-" + name.replace("_", "-") for name in names}
    for command in cli.COMMANDS.values():
        known |= {"--" + name.rstrip("_").replace("_", "-") for name in inspect.signature(command.function).parameters}
    found = {(page, flag) for page, span in prose_spans() for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*", span)}
    assert len(found) > 20
    assert not {(page, flag) for page, flag in found if flag not in known}


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = [span for _, span in prose_spans()] + [line for _, body in blocks("") for line in body.splitlines()]
    wanted = {word for text in named if text.startswith("make ") for word in re.split(r"\s+#|\s*ARGS", text)[0].split()[1:]}
    assert wanted >= {"train", "test", "check", "results", "docs"}
    assert wanted <= targets


def tree_paths() -> list[str]:
    """The paths of the annotated tree in the README."""
    (tree,) = (body for _, body in blocks("") if "src/counterpoint/\n" in body)
    folder, paths = "", []
    for line in tree.splitlines():
        name = line.split()[0]
        if not line.startswith(" "):
            folder = name if name.endswith("/") else ""
            paths.append(name)
        else:
            paths.append(folder + name)
    return paths


def test_tree_is_true():
    paths = tree_paths()
    assert len(paths) > 25
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_package_lists_its_files():
    packages = sorted((ROOT / "src/counterpoint").glob("*/**/__init__.py"))
    assert len(packages) > 12
    for package in packages:
        text = ast.get_docstring(ast.parse(package.read_text())) or ""
        listed = set(re.findall(r"[\w/]+(?:\.py|/)(?=\W|$)", text))
        files = {path.name for path in package.parent.glob("*.py")} - {"__init__.py"}
        assert {name for name in listed if name.endswith(".py")} == files, package


def test_the_tree_has_every_package():
    source = ROOT / "src/counterpoint"
    here = {f"src/counterpoint/{path.parent.name}/" for path in source.glob("*/__init__.py")}
    here |= {f"src/counterpoint/{path.name}" for path in source.glob("*.py") if not path.name.startswith("__")}
    assert {path for path in tree_paths() if path.startswith("src/counterpoint/")} == here | {"src/counterpoint/"}


@pytest.mark.parametrize("page", TEXT)
def test_links_lead_somewhere(page):
    here = (ROOT / page).parent
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", BLOCK.sub("", _plain(TEXT[page])))
    local = [link for link in links if not link.startswith("https://")]
    assert [link for link in local if not (here / link).exists()] == []


def test_every_decision_is_linked():
    readme, index, site = TEXT["README.md"], TEXT["docs/index.md"], (ROOT / "mkdocs.yml").read_text()
    assert ADRS
    for adr in ADRS:
        assert f"docs/adr/{adr.name}" in readme
        assert f"adr/{adr.name}" in index
        assert f"adr/{adr.name}" in site


def test_mentioned_files_exist():
    """Paths in code spans; a decision may name files that were not written."""
    known = {path.name for folder in ("src", "docs", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.*")}
    known |= {path.name for path in ROOT.iterdir()}
    known |= {
        "config.json",
        "metrics.csv",
        "policy.safetensors",
        "curve.png",
        "team.gif",
        "learners.csv",
        "learners.png",
        "spec.json",
        "sbom.json",
        "diverged.txt",
    }  # in a run's folder
    known |= {
        "comparison.md",
        "table.csv",
        "pairs.csv",
        "curves.csv",
        "curves.png",
        "profiles.png",
        "marl-eval.json",
        "grid.json",
    }
    known |= {"export.json", "agent_0.safetensors", "team.safetensors"}  # in an export
    known |= {"NAME.py"}  # stands for any file
    known |= {name for text in TEXT.values() for name, _ in FILE_BLOCK.findall(text)}
    for page, span in prose_spans():
        if page.startswith("docs/adr/") or page == "docs/reference/commands.md":  # the second also shows default file names
            continue
        if re.fullmatch(r"(src|docs|tests|benchmarks|examples|\.ci)/[\w./-]*", span):
            assert (ROOT / span).exists(), (page, span)
        elif re.fullmatch(r"[\w./-]*\.(py|md|toml|txt|csv|json|png|svg|gif|safetensors)", span):
            assert Path(span).name in known, (page, span)


def test_mentioned_functions_exist():
    """Spans such as `ops.td_target`, and the names in the algorithm's table."""
    homes: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src/counterpoint").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        homes.setdefault(name.rpartition(".")[2], []).append(name)
    found = 0
    for page, span in prose_spans():
        if page == "CHANGELOG.md" or page.startswith("docs/adr/"):  # they also name what is gone
            continue
        match = re.match(r"(?:counterpoint\.|core\.)?(\w+)\.(\w+)(?:\(.*\))?$", span)
        if (
            match
            and match[1] in homes.keys() - {"world"}
            and match[2]
            not in ("py", "json", "csv", "md", "tex", "npz", "png", "pdf", "svg", "safetensors", "onnx", "sums", "gif", "html")
        ):
            modules = [importlib.import_module(name) for name in homes[match[1]] if not name.endswith("__main__")]
            assert span in homes.get(match[2], ()) or any(hasattr(module, match[2]) for module in modules), (page, span)
            found += 1
    assert found >= 10
    for algorithm, some in {"maddpg": "update_agent", "coma": "advantages", "mappo": "policy_gain"}.items():
        module = importlib.import_module(f"counterpoint.algos.{algorithm}")
        page = TEXT[f"docs/algorithms/{algorithm}.md"].split("## Pseudo-code")[0]
        rows = re.findall(r"^\| .* \| (`.*) \|$", page, re.MULTILINE)
        names = {name for row in rows for name in SPAN.findall(row) if re.fullmatch(r"[a-z_]+", name)}
        assert ({"loss", some} if algorithm == "mappo" else {"critic_loss", "actor_loss", some}) <= names
        assert [name for name in names if not hasattr(module, name)] == []


def test_all_worlds_are_described():
    table = [line for line in TEXT["docs/worlds.md"].split("## Arguments")[0].splitlines() if line.startswith("| [`")]
    for name in WORLDS:
        (row,) = (line for line in table if f"`{name}`" in line.split("|")[1])
        if "as `simple_adversary`" not in row:
            missing = [figure for figure in reductions_of(make(name)) if figure.removesuffix("_last") not in row]
            assert missing == [], name


@pytest.fixture
def generators(monkeypatch):
    """Lets tests import the programs that write pages."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))


def test_the_reference_of_commands_is_up_to_date(generators):
    page = importlib.import_module("make_reference").page()
    assert TEXT["docs/reference/commands.md"] == page, "run python docs/make_reference.py"
    flags = set(re.findall(r"`(--[a-z-]+)", page))
    families = [configs.override(configs.Config(), algorithm=name) for name in entries()]
    settings = {name for family in families for name in configs.homes_of(family)} - set(configs.GROUPS)
    assert flags >= {"--" + name.replace("_", "-") for name in settings}


def test_the_python_reference_has_every_public_name():
    places = re.findall(r"^::: ([\w.]+)$", TEXT["docs/reference/python.md"], re.MULTILINE)
    assert {place.rpartition(".")[2] for place in places} == set(counterpoint._HOME_OF)
    for place in places:
        module, _, name = place.rpartition(".")
        assert getattr(importlib.import_module(module), name) is getattr(counterpoint, name)


def test_pages_load_nothing_from_the_network():
    site = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in site
    assert "js/iframe-worker.js" in site  # without it the theme would load a script of this name
    for file in [*ROOT.glob("docs/css/*"), *ROOT.glob("docs/js/*")]:
        assert "http" not in file.read_text(), file


@pytest.mark.parametrize("name", WORLDS)
def test_the_page_of_a_world_is_up_to_date(name, generators):
    page = TEXT[f"docs/worlds/{name}.md"]
    assert page == importlib.import_module("make_worlds").page(name), "run python docs/make_worlds.py"
    assert "reward" in page.split("## Agents")[0]
    assert f"worlds/{name}.md" in (ROOT / "mkdocs.yml").read_text()


def test_replay_takes_what_the_page_says():
    spec = make("simple_spread").spec
    size = 4 * spec.num_agents * (2 * spec.obs_size + spec.act_size + 3)
    assert size == 4 * row_size(example(spec))
    assert f"{size} bytes, so a million transitions are {size} MB" in TEXT["docs/runs.md"]


def test_defaults_are_those_the_pages_name():
    settings = configs.Config()
    learning, training = settings.learning, settings.training
    page = TEXT["docs/algorithms/maddpg.md"]
    assert f"width {learning.num_units}, Adam with step {learning.lr:g}, γ {learning.gamma:g}, τ {learning.tau:g}" in page
    assert f"batch {training.batch_size}, an update every {training.update_every} steps" in page
    demo, (told,) = presets.preset("demo"), re.findall(r"trains the demo \((\w+)\)", TEXT["README.md"])
    assert (demo.world.scenario, demo.name) == (told, "demo")
    assert {"authors-spread", "authors-speaker"} <= set(presets.PRESETS)


def test_what_newcomers_train_first_succeeds():
    """With the settings that people start from, such as the authors', they would see teams that fail."""
    measured = re.findall(r"^\| ([\w-]+) \| 5 \| (0\.9\d+|1\.0+) \|", TEXT["docs/results/success.md"], re.MULTILINE)
    first = ("README.md", "docs/tutorials/train-watch-improve.md")
    programs = [body for page, body in snippets() if page in first] + [(ROOT / "examples/train.py").read_text()]
    trained = re.findall(r"counterpoint\.train\((.*?)[,)]", "".join(programs), re.DOTALL)
    assert len(trained) == len(programs) == 3
    assert set(trained) <= {f'preset="{name}"' for name, _ in measured}

    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9.]+", line)] == []
