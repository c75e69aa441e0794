"""The table of SMAC's scripted policies: what is played, written, and not played again."""

import json
from pathlib import Path

import pytest

from macpf.cli import main
from macpf.envs.smac import Group, Scenario
from macpf.envs.smac.maps import SCENARIOS, Hold
from macpf.reproduce import smac_scripted
from macpf.reproduce.smac_scripted import COLUMNS, MAPS, cells


def averages(won: float) -> dict[str, float]:
    return {"won": won, "timeout": 0.0, "returns": 20 * won, "length": 9.0}


def test_all_maps_but_the_short_sighted_ones_are_played():
    assert len(MAPS) == 23
    assert set(SCENARIOS) - set(MAPS) == {"8m_vs_9m_myopic", "10m_vs_11m_myopic"}


def test_a_row_has_the_win_rates_of_the_policies_that_a_map_has():
    policies = COLUMNS[:-1]
    places = {"own": {p: averages(0.25) for p in policies}, "varied": {p: averages(1.0) for p in policies}}
    assert list(cells({"3m": places})) == [("3m", *["0.25 / 1.00"] * len(policies), "")]


def test_what_is_written_and_not_played_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Two marines against a zergling that stands beside them: whoever shoots it wins."""
    teams = (Group("marine", 2, (10.0, 16.0)),), (Group("zergling", 1, (12.0, 16.0)),)
    monkeypatch.setitem(SCENARIOS, "easy", Scenario(*teams, "flat", Hold(), limit=20))
    command = ["reproduce", "smac-scripted", "--maps", "easy", "--seeds", "2", "--out", str(tmp_path)]
    assert main(command) == 0
    assert "easy" in capsys.readouterr().out
    written = json.loads((tmp_path / "scores.json").read_text())
    assert (written["episodes"], written["versions"]["task"]) == (2, 2)
    assert written["scores"]["easy"]["own"]["attack nearest"]["won"] == 1
    assert "| easy | 1.00 / 1.00 | " in (tmp_path / "table.md").read_text()

    def played_twice(*_: object) -> None:
        raise AssertionError("the map was played already")

    monkeypatch.setattr(smac_scripted, "played", played_twice)
    assert main(command) == 0
    with pytest.raises(AssertionError, match="played already"):
        main([*command[:4], "--seeds", "3", *command[6:]])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--maps", "8n"], "unknown map"),
        (["--scale", "2"], "nothing is trained in smac-scripted"),
        (["--algorithms", "qmix"], "only smac has algorithms"),
    ],
)
def test_mistakes_are_one_sentence(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]):
    assert main(["reproduce", "smac-scripted", *words]) == 2
    assert sentence in capsys.readouterr().err
