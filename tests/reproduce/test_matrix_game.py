"""The table of the matrix game: the paper's numbers, shares and verdicts of made-up seeds, and mistakes."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from macpf.cli import main
from macpf.envs.matrix import TWO_OPTIMA
from macpf.experiments.vary import vary
from macpf.networks.mixers import Attention
from macpf.report.statistics import Share
from macpf.reproduce.lanes import Found, Lanes
from macpf.reproduce.matrix_game import (
    BEST,
    PAPER_SEEDS,
    Q_LEARNERS,
    ROWS,
    Row,
    draw_curves,
    draw_shares,
    lanes_of,
    lasting,
    shares,
    sweep_table,
    verdict,
    verdicts,
)

METHODS = list(dict.fromkeys(row.algorithm for row in ROWS))


def test_the_rows_hold_the_paper_s_numbers():
    told = {row.label: (row.optimal, row.worse) for row in ROWS if row.optimal is not None}
    assert PAPER_SEEDS == 5
    assert told == {
        "MACPF": (5, 0),
        "MACPF_DEP": (5, 0),
        "QMIX": (0, 0),
        "QPLEX": (3, 1),
        "QPLEX, attention": (3, 1),
        "QTRAN": (1, 0),
        "FOP": (2, 2),
        "MAPPO": (0, 0),
    }
    assert len({row.label for row in ROWS}) == len(ROWS)
    assert max(max(row) for row in TWO_OPTIMA) == BEST


def test_shares_count_the_last_evaluation_alone():
    returns = np.asarray([[0.0, 8.0], [8.0, 8.0], [8.0, 0.0], [8.0, -12.0], [8.0, -20.0]])
    assert shares(returns) == (Share(2, 5), Share(1, 5), Share(2, 5))


@pytest.mark.parametrize(
    ("row", "optimal", "worse", "expected"),
    [
        (Row("ours", "vdn"), Share(0, 9), Share(0, 9), "not in the paper"),
        (Row("x", "macpf", optimal=5, worse=0), Share(5, 5), Share(0, 5), "compatible (p = 1)"),
        (Row("x", "macpf", optimal=5, worse=0), Share(0, 5), Share(0, 5), "differs (p = 0.0079)"),
        (Row("x", "macpf", optimal=0, worse=0), Share(0, 5), Share(5, 5), "differs (p = 0.0079)"),
        (Row("x", "macpf", optimal=5, worse=0), Share(2, 4), Share(0, 4), "compatible (p = 0.17)"),
    ],
)
def test_a_verdict_is_that_of_the_less_likely_share(row: Row, optimal: Share, worse: Share, expected: str):
    assert verdict(row, optimal, worse) == expected


@pytest.mark.parametrize("name", METHODS)
def test_the_first_setting_of_a_sweep_is_the_preset_itself(name: str):
    """Exploration may be written otherwise (none, or by a chance of nothing); the rest is the same."""
    alone, swept = lanes_of(name, 2, 1.0, 0), lanes_of(name, 2, 1.0, 1)
    assert alone.settings == swept.settings[:1]
    assert alone.experiment == swept.experiment
    assert vary(
        alone.experiment, {"algorithm.optimiser.lr": alone.settings[0]["algorithm.optimiser.lr"]}
    ) == (alone.experiment)
    assert len(swept.settings) == len({tuple(s.items()) for s in swept.settings}) > 1
    assert swept.seeds[1:] == (1,) * (len(swept.settings) - 1)
    assert ("algorithm.epsilon.rate" in alone.settings[0]) == (name in Q_LEARNERS)
    for setting in swept.settings:
        vary(swept.experiment, setting)  # every path is there


def test_scale_is_a_multiple_of_the_steps():
    assert lanes_of("vdn", 1, 0.1, 0).experiment.steps == 1000
    assert lanes_of("vdn", 1, 1e-9, 0).experiment.steps == 1


def test_more_seeds_are_spent_on_our_own():
    assert lanes_of("macpf", 3, 1.0, 0).seeds == (15,)
    assert lanes_of("qmix", 3, 1.0, 0).seeds == (3,)


def test_qplex_with_attention_differs_in_its_mixer_alone():
    plain, other = (lanes_of(name, 1, 1.0, 0).experiment for name in ("qplex", "qplex-attention"))
    assert isinstance(other.algorithm.mixer, Attention)
    assert vary(other, {"name": plain.name, "algorithm.mixer": plain.algorithm.mixer}) == plain


@cache
def made_up() -> dict[str, Found]:
    """Results made up by hand: MACPF at 8 in all seeds, all others at 0, and both under two settings."""
    found = {}
    for name in METHODS:
        lanes = lanes_of(name, 4, 1.0, 2)
        lanes = Lanes(name, lanes.experiment, lanes.settings[:2], lanes.seeds[:2])
        n, policies = len(lanes.seed_of), lanes.experiment.algorithm.policies
        value = BEST if name == "macpf" else 0.0
        returns = {policy: np.full((n, 10), value, np.float32) for policy in policies}
        pi = np.zeros((n, 4, 4), np.float32)
        pi[:, 0, 0], pi[:, 3, 3] = (0.5, 0.45) if name == "macpf" else (0.9, 0.05)
        extra = {f"pi_{policy}": pi for policy in policies}
        found[name] = Found(lanes, np.arange(100, 1100, 100), returns, extra)
    return found


def line_of(markdown: str, label: str) -> list[str]:
    """The cells of one method's line."""
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in markdown.splitlines()]
    (line,) = [cells for cells in lines if cells[0] == label]
    return line


def test_the_table_says_who_is_optimal():
    _, markdown = verdicts(made_up())
    assert len(markdown.splitlines()) == 2 + len(ROWS)
    macpf, fop = line_of(markdown, "MACPF"), line_of(markdown, "FOP")
    assert macpf[1] == "20"
    assert macpf[2].startswith("100.0 %")
    assert macpf[5:] == ["5/5, 0/5", "compatible (p = 1)"]
    assert [cell.split(" %")[0] for cell in fop[2:5]] == ["0.0", "100.0", "0.0"]
    assert fop[5] == "2/5, 2/5"
    assert line_of(markdown, "VDN")[5:] == ["-", "not in the paper"]


def test_what_lasts_is_told_with_both_optima():
    cells = line_of(lasting(made_up()), "MACPF")
    assert cells[2].startswith("100.0 %")
    assert cells[3].startswith("100.0 %")
    assert cells[4] == "0.95"
    others = line_of(lasting(made_up()), "QMIX")
    assert others[2].startswith("0.0 %")
    assert others[3].startswith("0.0 %")


def test_a_sweep_has_a_line_for_every_setting():
    lines = sweep_table(made_up()).splitlines()
    assert len(lines) == 2 + 2 * len(ROWS)
    assert sum("| 100 % | 100 % | 100 % |" in line for line in lines) == 4  # both policies of MACPF
    assert "optimiser lr 0.0003" in lines[2]


def test_figures_are_drawn(tmp_path: Path):
    for draw in (draw_curves, draw_shares):
        path = tmp_path / f"{draw.__name__}.png"
        draw(made_up(), path)
        assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["matrix-gam"], "matrix-game"),
        ([], "missing from macpf reproduce"),
        (["matrix-game", "--seeds", "-1"], "the number of seeds must be positive, not -1"),
        (["matrix-game", "--seeds", "0"], "the number of seeds must be positive, not 0"),
        (["matrix-game", "--scale", "0"], "the scale must be positive, not 0.0"),
        (["matrix-game", "--sweep", "-2"], "must not be negative, not -2"),
        (["random-games", "--sweep", "1"], "only matrix-game and mpe have a sweep"),
        (["multi-goal", "--sweep", "1"], "only matrix-game and mpe have a sweep"),
        (["matrix-game", "--sedes", "1"], "did you mean --seeds?"),
    ],
)
def test_mistakes_are_one_sentence(
    args: list[str],
    expected: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("macpf: ")
    assert len(err.splitlines()) == 1
    assert expected in err.lower()
    assert list(tmp_path.iterdir()) == []
