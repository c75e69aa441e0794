"""What agents can do that do not see each other: intervals by hand, what is printed, kept and refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from macpf.cli import main
from macpf.reproduce import mpe, mpe_apart
from macpf.reproduce.mpe_apart import TASKS, better, in_common_episodes, lead

KEPT = Path(__file__).parents[2] / "results"


def test_a_lead_by_hand():
    """Ahead by 1 and by 3 with the two places of the landmarks, whatever each episode brings."""
    played = np.asarray([[[-10, -8], [-10, -10]], [[-9, -6], [-7, -4]]], float)
    ahead = lead(played)
    assert (ahead.low, ahead.mean, ahead.high) == pytest.approx((2 - 1.96, 2, 2 + 1.96))  # 1.96 sqrt(2 / 2)


def test_the_better_team_is_chosen_by_other_episodes_than_it_is_judged_by():
    """With the first landmarks the first team, which is worse where it is judged; then the second."""
    one = np.asarray([[[-9, -1], [-8, -7]], [[-9, -5], [-8, -5]]], float)
    other = np.asarray([[[-9, -2], [-8, -3]], [[-9, -4], [-8, -6]]], float)
    assert better((one, other)).tolist() == [[[-8, -7]], [[-8, -6]]]


@pytest.mark.parametrize("task", TASKS)
def test_methods_that_were_trained_are_in_the_table(task: str):
    """QMIX in the kept data is as far ahead of the controller as the table of the particle tasks has it."""
    found = dict(in_common_episodes(KEPT / "mpe", task))
    assert list(found) == ["`fixed` without contacts", *(row.label for row in mpe.ROWS)]
    qmix = {"formation-control": -12.92, "line-control": -15.59}[task]
    assert found["QMIX"].mean == pytest.approx(qmix - mpe.ceiling(task), abs=0.01)
    assert abs(found["`fixed` without contacts"].mean) < 0.05


def test_what_is_written_and_not_searched_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(mpe_apart, "TASKS", ("line-control",))
    monkeypatch.setattr(mpe_apart, "SEARCH", {"rounds": 1, "starts": 2, "beam": 4, "plays": 3})
    command = ["reproduce", "mpe-apart", "--seeds", "2", "--out", str(tmp_path / "mpe-apart")]
    assert main(command) == 0
    assert "found from" in capsys.readouterr().out
    written = json.loads((tmp_path / "mpe-apart" / "line-control-own.json").read_text())
    assert written["command"] == "macpf reproduce mpe-apart --seeds 2"
    assert np.asarray(written["returns"]).shape == (2, 3, 2)
    table = (tmp_path / "mpe-apart" / "table.md").read_text()
    assert len(table.splitlines()) == 2 + 4  # nobody was trained there

    monkeypatch.setattr(mpe_apart, "searched", None)  # would fail if it were called
    assert main(command) == 0
    assert (tmp_path / "mpe-apart" / "table.md").read_text() == table


def test_one_place_of_the_landmarks_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["reproduce", "mpe-apart", "--seeds", "1", "--out", str(tmp_path / "new")]) == 2
    assert "an interval takes at least two" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
