"""Where trajectories end: counted by hand on made-up ones, and one small run of the whole."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from macpf.cli import main
from macpf.envs.multi_goal import DIRECTIONS, MultiGoal
from macpf.reproduce import multi_goal
from macpf.reproduce.lanes import Found
from macpf.reproduce.multi_goal import (
    PANELS,
    draw,
    evenness,
    goals_reached,
    lanes_of,
    where_they_end,
)
from macpf.theory import MDP, soft_value_iteration

EAST, NORTH, WEST, SOUTH = range(4)
ENDS = np.asarray([[5.0, 0.0], [0.2, 5.3], [-5.0, 0.9], [0.0, -5.0], [4.0, 0.5], [0.0, 0.0]])


def found_ending(ends: np.ndarray, algorithm: str) -> Found:
    """Two seeds whose rollouts all go from the middle to these ends in one step."""
    paths = np.stack([np.zeros_like(ends), ends], axis=1)
    both = np.stack([paths, paths])
    lanes = lanes_of(algorithm, 2, 1.0)
    names = [f"{kind}_{name}" for kind in ("path", "greedy") for name in lanes.experiment.algorithm.policies]
    return Found(lanes, np.asarray([1]), {}, dict.fromkeys(names, both))


def test_a_goal_is_reached_within_its_width():
    reached = goals_reached(found_ending(ENDS, "central"), "path_ind")
    assert_array_equal(reached, [[EAST, NORTH, WEST, SOUTH, -1, -1]] * 2)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [([0.25] * 4, 1.0), ([0.1] * 4, 1.0), ([0.5, 0.5, 0, 0], 0.5), ([0, 0, 0.7, 0], 0.0), ([0.0] * 4, 0.0)],
)
def test_evenness_is_the_entropy_in_those_of_four_equal_goals(shares: list[float], expected: float):
    assert evenness(np.asarray(shares)) == pytest.approx(expected)


@cache
def made_up() -> dict[str, Found]:
    return {panel.algorithm: found_ending(ENDS, panel.algorithm) for panel in PANELS}


def test_the_table_tells_shares_of_rollouts():
    _, markdown = where_they_end(made_up())
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in markdown.splitlines()]
    assert len(lines) == 2 + len(PANELS)
    for cells in lines[2:]:
        assert cells[1:] == ["2", *["17 %"] * 4, "66.7 %", "1.00", "17 to 17 %"]


def test_the_figure_is_drawn(tmp_path: Path):
    draw(made_up(), tmp_path / "trajectories.png")
    assert (tmp_path / "trajectories.png").read_bytes().startswith(b"\x89PNG")


def test_training_begins_anywhere_and_the_task_itself_in_the_middle():
    made = lanes_of("macpf-plus", 1, 1.0).experiment
    assert replace(made.env, start_spread=MultiGoal().start_spread) == MultiGoal()
    assert made.env.start_spread > 1


def test_scale_is_a_multiple_of_the_steps_over_which_learning_rates_fall():
    whole, half = (lanes_of("central", 1, scale).experiment for scale in (1.0, 0.5))
    assert (half.steps, half.algorithm.optimiser.anneal) == (
        whole.steps // 2,
        whole.algorithm.optimiser.anneal // 2,
    )


def test_the_exact_soft_optimum_reaches_a_goal_nearly_always():
    """By soft value iteration on the lattice of places, from the middle: 0.9997 with the preset's numbers."""
    made = lanes_of("central", 1, 1.0).experiment
    env, ticks = made.env, np.arange(-7, 8)
    place = np.stack(np.meshgrid(ticks, ticks, indexing="ij"), axis=-1).reshape(-1, 2)
    n = len(place)
    away2 = ((place[:, None] - np.asarray(env.goals)[None]) ** 2).sum(-1)
    reward = np.exp(-away2 / (2 * env.goal_width**2)).sum(-1)
    transition = np.zeros((n, 4, 4, n))
    for i, j in np.ndindex(4, 4):
        moved = np.clip(place + (i == j) * env.stride * np.asarray(DIRECTIONS[i]), -7, 7).astype(int)
        transition[np.arange(n), i, j, 15 * (moved[:, 0] + 7) + moved[:, 1] + 7] = 1
    mdp = MDP(transition, transition @ reward, made.algorithm.gamma)
    best = soft_value_iteration(mdp, made.algorithm.alpha.final, tolerance=1e-6).pi
    chain = np.einsum("sij,sijt->st", best, transition)
    where = np.eye(n)[n // 2] @ np.linalg.matrix_power(chain, env.horizon)
    ends = np.asarray([where[away2[:, goal] <= env.goal_width**2 + 1e-6].sum() for goal in range(4)])
    np.testing.assert_allclose(ends, ends[0], rtol=1e-6)
    assert ends.sum() == pytest.approx(0.9997, abs=1e-4)


def test_it_runs_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(multi_goal, "PANELS", PANELS[:1])
    monkeypatch.setattr(multi_goal, "ROLLOUTS", 3)
    out = tmp_path / "mg"
    assert main(["reproduce", "multi-goal", "--seeds", "1", "--scale", "0.004", "--out", str(out)]) == 0
    assert "evenness" in capsys.readouterr().out
    assert {path.name for path in out.iterdir()} >= {"table.md", "trajectories.png", "central"}
