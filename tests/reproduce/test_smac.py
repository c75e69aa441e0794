"""Win rates on SMAC: made-up seeds with known answers, and the command with the training left out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from macpf.cli import main
from macpf.reproduce import smac
from macpf.reproduce.lanes import Found, Lanes
from macpf.reproduce.smac import MAPS, METHODS, lanes_of, learned_after, smoothed, win_rates

STEPS = np.arange(10, 110, 10)


def test_a_rate_is_the_mean_of_the_last_five_evaluations():
    won = np.asarray([[0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0]])
    assert_allclose(smoothed(won), [[0, 1 / 2, 1 / 3, 1 / 4, 2 / 5, 3 / 5, 3 / 5]])


@pytest.mark.parametrize(
    ("wins", "since"),
    [
        ([1.0] * 10, 10),
        ([0.9] * 10, 10),
        ([0.0] + [1.0] * 9, 60),
        ([0.0] * 5 + [1.0] * 5, 100),
        ([1.0] * 9 + [0.0], None),
        ([0.0] * 10, None),
    ],
)
def test_a_map_is_learned_from_where_it_is_won_to_the_end(wins: list[float], since: int | None):
    both = np.asarray([wins, wins])
    assert learned_after(STEPS, both) == since


def test_what_one_seed_learned_two_have_not():
    assert learned_after(STEPS, np.asarray([[1.0] * 10, [0.0] * 10])) is None


def made_up(lanes: Lanes) -> Found:
    """MACPF wins always, its dependent policy in half of the episodes; QMIX in all but one of five."""
    names = lanes.experiment.algorithm.policies
    shares = {"ind": 0.8 if lanes.experiment.name == "qmix" else 1.0, "dep": 0.5}
    won = {name: np.full((lanes.seeds[0], 10), shares[name]) for name in names}
    return Found(lanes, STEPS, {name: 20 * rates for name, rates in won.items()}, {}, won)


def test_every_policy_has_a_line_with_its_verdict():
    found = {lanes.name: made_up(lanes) for lanes in (lanes_of(m, "3m", 5, 1.0) for m in METHODS)}
    lines = [[c.strip() for c in line.split("|")[1:-1]] for line in win_rates(found)[1].splitlines()[2:]]
    assert lines == [
        ["3m", "qmix", "pi_ind", "5", "0.80 ± 0.00", "-", "not learned"],
        ["3m", "macpf", "pi_ind", "5", "1.00 ± 0.00", "10 steps", "learned"],
        ["3m", "macpf", "pi_dep", "5", "0.50 ± 0.00", "-", "not learned"],
    ]


def test_the_experiments_are_the_presets_half_a_million_steps_long():
    lanes = lanes_of("qmix", "8m", 5, 0.5)
    assert (lanes.name, lanes.seeds, lanes.experiment.steps) == ("8m/qmix", (5,), 250_000)
    assert lanes.experiment.task == "smac/8m"


def test_one_command_writes_table_and_curves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    asked: list[Lanes] = []

    def run_all(wanted: Sequence[Lanes], *rest: Any) -> dict[str, Found]:
        asked.extend(wanted)
        (tmp_path / "smac").mkdir()
        return {lanes.name: made_up(lanes) for lanes in wanted}

    monkeypatch.setattr(smac, "run_all", run_all)
    out = tmp_path / "smac"
    assert main(["reproduce", "smac", "--seeds", "2", "--maps", "3m", "MMM2", "--out", str(out)]) == 0
    assert [lanes.name for lanes in asked] == ["3m/qmix", "3m/macpf", "MMM2/qmix", "MMM2/macpf"]
    assert "win rates of greedy policies" in capsys.readouterr().out
    assert (out / "table.md").read_text().count("learned") == 6
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_mistakes_are_one_sentence(capsys: pytest.CaptureFixture[str]):
    for args, said in (
        (["smac", "--maps", "9m"], "unknown map '9m'"),
        (["smac", "--algorithms", "qmax"], "unknown algorithm 'qmax'"),
        (["mpe", "--maps", MAPS[0]], "only smac and smac-scripted have maps"),
    ):
        assert main(["reproduce", *args]) == 2
        err = capsys.readouterr().err
        assert said in err
        assert len(err.splitlines()) == 1
