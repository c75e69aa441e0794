"""The table of the particle tasks: the paper's numbers, verdicts on made-up seeds, and one small run."""

import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from macpf.cli import main
from macpf.experiments.presets import experiment
from macpf.experiments.vary import vary
from macpf.report.statistics import Sample
from macpf.reproduce import mpe
from macpf.reproduce.lanes import Found, Lanes, load
from macpf.reproduce.mpe import (
    EPISODES,
    FACTOR,
    GAMMA,
    LR,
    ONE_RATE,
    RATES,
    ROWS,
    SWEEP_SHARE,
    SWEPT,
    TASKS,
    Row,
    against_controller,
    ceiling,
    dependence,
    draw_curves,
    final,
    lambda_of,
    lanes_of,
    leads,
    rates_of,
    rates_table,
    sweep_of,
    sweep_table,
    verdict,
    verdicts,
)

KEPT = Path(__file__).parents[2] / "results" / "mpe"


def test_the_rows_hold_the_paper_s_numbers():
    told = {row.label: row.paper for row in ROWS if row.paper}
    assert set(told) == {"MACPF", "QMIX", "QPLEX", "FOP", "MAPPO"}
    assert {label: paper[0] for label, paper in told.items()} == {
        "MACPF": (-118.24, 2.74),
        "QMIX": (-145.93, 21.09),
        "QPLEX": (-122.50, 2.58),
        "FOP": (-125.19, 5.42),
        "MAPPO": (-166.75, 23.44),
    }
    assert [paper[1][0] for paper in told.values()] == [-15.79, -16.11, -16.10, -15.84, -21.71]
    assert [paper[2][0] for paper in told.values()] == [-19.60, -20.12, -20.17, -19.78, -24.47]


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        (Sample(-118.0, 3.0, 5), "compatible"),
        (Sample(-110.0, 1.0, 5), "better"),
        (Sample(-130.0, 1.0, 5), "worse"),
    ],
)
def test_a_verdict_compares_means(ours: Sample, expected: str):
    assert verdict(ours, Sample(-118.24, 2.74, 5))[0] == expected
    assert verdict(ours, None) == ("-", "-")


@pytest.mark.parametrize("name", [row.algorithm for row in ROWS])
def test_a_sweep_is_the_same_short_grid_for_all(name: str):
    alone, swept = lanes_of(name, TASKS[1], 5, SWEEP_SHARE), sweep_of(name, TASKS[1], 2, 1.0)
    assert (alone.seeds, swept.seeds) == ((5,), (2,) * len(SWEPT))
    assert swept.experiment.steps == alone.experiment.steps == 300_000
    assert swept.experiment.algorithm.optimiser.anneal == 0
    ahead = lambda_of(swept.experiment)
    tried = [(s[LR], (s[GAMMA], s[FACTOR] / 10), s[ahead]) for s in swept.settings]
    assert tuple(tried) == SWEPT  # on formation control, where rewards are a tenth
    assert vary(swept.experiment, swept.settings[0]) == swept.experiment


@pytest.mark.parametrize("name", [row.algorithm for row in ROWS])
def test_the_preset_is_the_best_of_what_was_swept(name: str):
    """By the short sweep, but for the learning rate where the whole training was run at several.

    MACPF's stays that of the sweep, at which it was trained on all three tasks.
    """
    swept = load(sweep_of(name, TASKS[0], 1, 1.0), KEPT / TASKS[0] / f"{name}-sweep")
    assert swept is not None
    best = swept.lanes.settings[int(swept.extra["final_ind"].mean(axis=1).argmax())]
    lr, whole = best[LR], load(lanes_of(name, TASKS[0], 5, 1.0), KEPT / TASKS[0] / name)
    assert whole is not None
    if name not in (*ONE_RATE, "macpf"):
        of_rate = [whole.extra["final_ind"][whole.lanes.setting_of == i].mean() for i in range(len(RATES))]
        lr = RATES[int(np.argmax(of_rate))]
    made = experiment(name, f"mpe/{TASKS[0]}")
    ahead = getattr(made.algorithm, lambda_of(made).removeprefix("algorithm."))
    found = (made.algorithm.optimiser.lr, made.algorithm.gamma, made.reward_factor, ahead)
    assert found == (lr, best[GAMMA], best[FACTOR], best[lambda_of(made)])


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("row", ROWS)
def test_every_cell_of_the_table_is_kept(row: Row, task: str):
    kept = load(lanes_of(row.algorithm, task, 5, 1.0), KEPT / task / row.algorithm)
    assert kept is not None
    assert final({f"{task}/{row.algorithm}": kept}, task, row.algorithm).shape == (5, EPISODES)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", ["vdn", "qplex"])
def test_the_first_task_is_run_at_both_rates_by_most(name: str, task: str):
    lanes = lanes_of(name, task, 5, 1.0)
    preset = experiment(name, f"mpe/{task}").algorithm.optimiser.lr
    expected = RATES if task == TASKS[0] and name == "vdn" else (preset,)
    assert tuple(rates_of(empty(lanes))) == expected
    assert lanes.seeds == (5,) * len(expected)
    assert lanes.experiment.algorithm.optimiser.anneal == 80_000


TRACE = """
import jax, jax.numpy as jnp
from macpf.experiments.vary import vary
from macpf.reproduce.mpe import GAMMA, ROWS, TASKS, sweep_of
for row in ROWS:
    swept = sweep_of(row.algorithm, TASKS[0], 1, 1.0)
    setting = {path: jnp.asarray(value) for path, value in swept.settings[1].items()}
    gamma = jax.jit(lambda setting: jnp.asarray(vary(swept.experiment, setting).algorithm.gamma))(setting)
    assert gamma == jnp.asarray(swept.settings[1][GAMMA]), row
"""


def test_what_a_sweep_changes_may_be_traced():
    """In a process of its own, since the checked annotations of the tests ask for plain numbers."""
    done = subprocess.run([sys.executable, "-c", TRACE], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_scale_is_a_multiple_of_the_steps():
    assert lanes_of("vdn", TASKS[0], 1, 0.1).experiment.steps == 200_000


@cache
def made_up() -> dict[str, Found]:
    """Results made up by hand: method i scores -100 - i, seeds are 0.5 apart, settings 10 apart.

    (Of whole trainings, the preset scores so, and the other learning rate 10 less.)
    """
    found = {}
    for task in TASKS:
        for i, row in enumerate(ROWS):
            for lanes in (lanes_of(row.algorithm, task, 3, 1.0), sweep_of(row.algorithm, task, 3, 1.0)):
                rate = experiment(row.algorithm, f"mpe/{task}").algorithm.optimiser.lr
                best = RATES.index(rate) if len(lanes.settings) == len(RATES) else 0
                level = -100.0 - i + 0.5 * lanes.seed_of - 10 * np.abs(lanes.setting_of - best)
                policies = lanes.experiment.algorithm.policies
                extra = {f"final_{policy}": np.tile(level[:, None], (1, 6)) for policy in policies}
                returns = {policy: np.tile(level[:, None], (1, 20)) for policy in policies}
                found[lanes.name] = Found(lanes, np.arange(20), returns, extra)
    return found


def empty(lanes: Lanes) -> Found:
    return Found(lanes, np.arange(0), {}, {})


CEILINGS: dict[str, float] = dict.fromkeys(TASKS, -90.0)


def cells_of(markdown: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in markdown.splitlines()[2:]]


def test_the_table_has_ours_beside_the_paper_s():
    lines = cells_of(verdicts(made_up(), CEILINGS, 3)[1])
    assert len(lines) == len(TASKS) * len(ROWS)
    first = lines[0]
    assert first[:4] == ["simple-spread", "MACPF", "-99.50 ± 0.50", "-118.24 ± 2.74"]
    assert first[4:] == ["better", "< 0.001", "-10.6 %"]
    assert lines[1][3:6] == ["-", "-", "-"]
    assert [line[2] for line in lines] == [f"{-99.5 - i:.2f} ± 0.50" for i in range(len(ROWS))] * len(TASKS)


def test_a_return_is_set_against_the_controller_s():
    assert against_controller(-13.0, -13.2) == "+1.5 %"
    assert against_controller(-16.0, -15.8) == "-1.3 %"
    assert against_controller(-15.801, -15.8) == "equal"


def test_the_better_of_ours_is_set_against_every_baseline():
    lines = cells_of(leads(made_up(), TASKS))
    assert len(lines) == len(TASKS) * (len(ROWS) - 2)
    assert lines[0][:3] == ["simple-spread", "macpf", "QMIX"]
    assert lines[0][3].startswith("2.00 [")
    of = {(line[0], line[2]): line[4] for line in lines}
    assert of["simple-spread", "QPLEX"].startswith("4.26 (p 0.0")  # both given as mean and deviation of 5
    assert of["formation-control", "FOP"] == "0.05 (p 0.66)"
    assert of["line-control", "VDN"] == "-"


def test_what_knowing_the_predecessors_actions_is_worth():
    """Seeds and episodes are pairs: what is 2 in all of them is 2 for certain, however they differ."""
    found = made_up()
    for algorithm, gain in (("macpf", 2), ("macpf-plus", -1)):
        there = found[name := f"line-control/{algorithm}"]
        knowing = {"final_dep": there.extra["final_ind"] + gain}
        found = found | {name: replace(there, extra={**there.extra, **knowing})}
    lines = cells_of(dependence(found, ("line-control",)))
    assert lines == [
        ["line-control", "MACPF", "2.00 [2.00, 2.00]"],
        ["line-control", "macpf-plus", "-1.00 [-1.00, -1.00]"],
    ]


def test_every_learning_rate_of_a_whole_training_has_a_line():
    lines = cells_of(rates_table(made_up(), TASKS))
    assert len(lines) == len(ROWS) * (len(RATES) + 2) - len(ONE_RATE)
    macpf = sorted(line[2:] for line in lines if line[:2] == ["simple-spread", "MACPF"])
    assert [line[:2] for line in macpf] == [["0.001", "3"], ["0.002", "3"]]
    assert {line[2] for line in macpf} == {"-99.50 ± 0.50", "-109.50 ± 0.50"}


def test_a_sweep_has_a_line_for_every_setting():
    lines = cells_of(sweep_table(made_up(), TASKS))
    swept = {row.algorithm: sweep_of(row.algorithm, TASKS[0], 1, 1.0).settings for row in ROWS}
    assert len(lines) == len(TASKS) * sum(map(len, swept.values()))
    assert lines[0][2:] == ["0.0005", "0.99", "0.1", "0.8", "3", "-99.50 ± 0.50"]
    assert [line[2] for line in lines[: len(SWEPT)]].count("0.001") == len(SWEPT) // 3


def test_a_controller_plays_the_episodes_of_the_curves_or_those_of_the_table():
    line = TASKS[2]
    assert ceiling(line, episodes=8) == ceiling(line, seed=EPISODES, episodes=8) != ceiling(line, 1, 8)


def test_curves_are_drawn(tmp_path: Path):
    draw_curves(made_up(), TASKS[1:], tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_it_runs_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(mpe, "EPISODES", 4)
    monkeypatch.setattr(mpe, "ROWS", [ROWS[2]])
    monkeypatch.setattr(mpe, "OURS", ("qmix",))
    out = tmp_path / "mpe"
    args = ["--seeds", "2", "--scale", "0.0001", "--tasks", "line-control", "--out", str(out)]
    assert main(["reproduce", "mpe", *args]) == 0
    assert "line-control: 4 episodes, 2 seeds" in capsys.readouterr().out
    assert {path.name for path in out.iterdir()} == {"table.md", "curves.png", "line-control"}
    with np.load(out / "line-control" / "qmix" / "data.npz") as data:
        assert data["final_ind"].shape == (2, 4)


def test_mistakes_are_one_sentence(capsys: pytest.CaptureFixture[str]):
    for args, said in (
        (["mpe", "--tasks", "nowhere"], "nowhere"),
        (["multi-goal", "--tasks", "line-control"], "only mpe has several tasks"),
        (["random-games", "--sweep", "1"], "only matrix-game and mpe have a sweep"),
    ):
        assert main(["reproduce", *args]) == 2
        err = capsys.readouterr().err
        assert said in err
        assert len(err.splitlines()) == 1
