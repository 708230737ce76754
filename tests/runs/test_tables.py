"""Tables as Markdown and CSV, written whole or not at all."""

import pytest

from counterpoint.core.errors import UsageError
from counterpoint.runs import files, tables


def test_markdown_by_hand():
    rows = [["maddpg", 3, -31.456, None], ["a|b", None, float("nan"), True]]
    assert tables.markdown_table(["run", "seeds", "return", "won"], rows) == (
        "| run | seeds | return | won |\n| :-- | --: | --: | :-- |\n| maddpg | 3 | -31.46 | – |\n| a\\|b | – | – | True |\n"
    )


def test_empty_table_has_a_header():
    assert tables.markdown_table(["run"], []) == "| run |\n| :-- |\n"


def test_csv_keeps_numbers_in_full_and_quotes_commas(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")
    tables.write_csv(path, ["run", "return"], iter([["maddpg, coded", -31.4567], ["ddpg", None]]))
    assert path.read_text() == 'run,return\n"maddpg, coded",-31.4567\nddpg,\n'
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("write", [tables.markdown_table, lambda *table: tables.write_csv("never.csv", *table)])
def test_ragged_rows_raise_a_usage_error(write):
    with pytest.raises(UsageError, match=r"2 cells \(run, return\), not 1"):
        write(["run", "return"], [["maddpg"]])


def test_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")

    def write(draft):
        draft.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(UsageError, match="No space left"):
        files.write_whole(path, write)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
