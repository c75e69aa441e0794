"""Lanes: which is which, what is saved, what is taken again, and that each is a plain run of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from macpf.reproduce.lanes import Found, Lanes, load, save
from tests.tiny import tiny_experiment

ROOT = Path(__file__).parents[2]
LR, GAMMA = "algorithm.optimiser.lr", "algorithm.gamma"
LANES = Lanes("macpf", tiny_experiment(), ({LR: 1e-3, GAMMA: 0.5}, {LR: 1e-2, GAMMA: 0.25}), (3, 2))


def test_every_lane_is_a_seed_under_a_setting():
    assert_array_equal(LANES.seed_of, [0, 1, 2, 0, 1])
    assert_array_equal(LANES.setting_of, [0, 0, 0, 1, 1])
    changes = LANES.changes
    assert list(changes) == [GAMMA, LR]
    assert_array_equal(changes[LR], np.asarray([1e-3, 1e-3, 1e-3, 1e-2, 1e-2], np.float32))
    assert_array_equal(changes[GAMMA], np.asarray([0.5, 0.5, 0.5, 0.25, 0.25], np.float32))


def test_a_plain_experiment_is_one_lane_without_changes():
    lanes = Lanes("macpf", tiny_experiment())
    assert_array_equal(lanes.seed_of, [0])
    assert_array_equal(lanes.setting_of, [0])
    assert lanes.changes == {}


def found_of(lanes: Lanes) -> Found:
    """Results made up by hand, all of them different."""
    n = len(lanes.seed_of)
    returns = np.arange(n * 4, dtype=np.float32).reshape(n, 4)
    extra = {"pi_dep": np.linspace(0, 1, n * 16, dtype=np.float32).reshape(n, 4, 4)}
    won = {"ind": returns / 100, "dep": 1 - returns / 100}
    return Found(lanes, np.asarray([10, 20, 30, 40]), {"ind": returns, "dep": -returns}, extra, won)


def test_results_come_by_setting():
    found = found_of(LANES)
    assert_array_equal(found.of(0, "ind"), found.returns["ind"][:3])
    assert_array_equal(found.of(1, "dep"), found.returns["dep"][3:])


def test_what_is_saved_is_what_is_loaded(tmp_path: Path):
    saved = found_of(LANES)
    save(saved, tmp_path / "there" / "macpf", 1.26)
    loaded = load(LANES, tmp_path / "there" / "macpf")
    assert loaded is not None
    assert loaded.lanes == LANES
    assert_array_equal(loaded.steps, saved.steps)
    for what in ("returns", "extra", "won"):
        one, other = getattr(loaded, what), getattr(saved, what)
        assert one.keys() == other.keys()
        for name in one:
            assert_array_equal(one[name], other[name])
    config = json.loads((tmp_path / "there" / "macpf" / "config.json").read_text())
    assert config["seconds"] == 1.3
    assert config["command"].startswith("macpf")
    assert config["versions"]
    assert (config["name"], config["seeds"]) == ("macpf", [3, 2])


OTHERS = {
    "seeds": replace(LANES, seeds=(3, 3)),
    "settings": replace(LANES, settings=({LR: 1e-3, GAMMA: 0.5}, {LR: 2e-2, GAMMA: 0.25})),
    "paths": replace(LANES, settings=({LR: 1e-3}, {LR: 1e-2})),
    "order": replace(LANES, settings=LANES.settings[::-1]),
    "experiment": replace(LANES, experiment=tiny_experiment(steps=41)),
    "algorithm": replace(
        LANES, experiment=replace(LANES.experiment, algorithm=replace(LANES.experiment.algorithm, hidden=9))
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_was_saved_of_others_is_not_taken(what: str, tmp_path: Path):
    save(found_of(LANES), tmp_path, 1.0)
    assert load(OTHERS[what], tmp_path) is None
    assert load(LANES, tmp_path) is not None


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def nonsense(path: Path) -> None:
    path.write_bytes(b"nothing of the kind")


DAMAGES: list[tuple[str, Callable[[Path], None]]] = [
    ("config.json", Path.unlink),
    ("config.json", cut_short),
    ("config.json", empty),
    ("data.npz", Path.unlink),
    ("data.npz", nonsense),
]


@pytest.mark.parametrize(("file", "damage"), DAMAGES)
def test_what_is_damaged_is_not_taken(file: str, damage: Callable[[Path], None], tmp_path: Path):
    save(found_of(LANES), tmp_path, 1.0)
    damage(tmp_path / file)
    assert load(LANES, tmp_path) is None


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path):
    assert load(LANES, tmp_path / "nowhere") is None


# Lanes that are run, in a process of their own: where annotations are checked, numbers may not be traced

RUN = """
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
import jax, numpy as np
from rich.console import Console
import macpf
from macpf.experiments.vary import vary
from macpf.reproduce import lanes as the
from macpf.reproduce.matrix_game import joint_policy
from macpf.training import train

out = Path(sys.argv[1])
made = macpf.experiment("vdn", "matrix-game")
made = replace(made, steps=90, eval_every=30, batch=8, burn_in=8, replay=64)
made = replace(made, algorithm=replace(made.algorithm, hidden=8))
path = "algorithm.optimiser.lr"
lanes = the.Lanes("vdn", made, ({path: 0.01}, {path: 0.1}), (2, 1))
console = Console(stderr=True)
first = the.run_all([lanes], out, console, joint_policy)["vdn"]

def refuse(*args):
    raise SystemExit("ran again")

the.compile_ = refuse
second = the.run_all([lanes], out, console, joint_policy)["vdn"]
plain = {}
experiments = [vary(made, {path: float(np.float32(setting[path]))}) for setting in lanes.settings]
trains = [jax.jit(partial(train, experiment)) for experiment in experiments]
for lane, (seed, setting) in enumerate(zip(lanes.seed_of, lanes.setting_of)):
    experiment = experiments[setting]
    state, record = trains[setting](jax.random.key(int(seed)))
    plain[f"returns_{lane}"] = np.asarray(record.scores["ind"].returns).mean(axis=-1)
    plain[f"won_{lane}"] = np.asarray(record.scores["ind"].won).mean(axis=-1)
    plain[f"pi_{lane}"] = joint_policy(experiment, state.learner)["pi_ind"]
np.savez(out / "seen.npz", steps=first.steps, won_first=first.won["ind"],
         first=first.returns["ind"], second=second.returns["ind"],
         pi_first=first.extra["pi_ind"], pi_second=second.extra["pi_ind"], **plain)
"""


@cache
def ran() -> tuple[Path, dict[str, Any]]:
    """The folder of lanes that were run, and what was seen of them."""
    out = Path(mkdtemp(prefix="macpf-lanes-"))
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "JAX_PLATFORMS": "cpu"}
    environment["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # it compiles for longer than it runs
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(out)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    with np.load(out / "seen.npz") as seen:
        return out, dict(seen)


def test_every_lane_is_a_plain_run_of_its_setting_and_seed():
    _, seen = ran()
    assert seen["first"].shape == (3, 3)
    assert_array_equal(seen["steps"], [38, 68, 98])  # 8 of them before learning starts
    for lane in range(3):
        assert_array_equal(seen["first"][lane], seen[f"returns_{lane}"])
        assert_array_equal(seen["won_first"][lane], seen[f"won_{lane}"])
        assert_allclose(seen["pi_first"][lane], seen[f"pi_{lane}"], rtol=1e-4, atol=1e-5)


def test_what_is_there_is_not_run_again():
    _, seen = ran()
    assert_array_equal(seen["first"], seen["second"])
    assert_array_equal(seen["pi_first"], seen["pi_second"])


def test_lanes_leave_a_folder_with_configuration_and_numbers():
    out, _ = ran()
    assert {file.name for file in (out / "vdn").iterdir()} == {"config.json", "data.npz"}
    config = json.loads((out / "vdn" / "config.json").read_text())
    assert config["settings"] == [{LR: 0.01}, {LR: 0.1}]
    assert config["seeds"] == [2, 1]
    with np.load(out / "vdn" / "data.npz") as data:
        assert set(data) == {"steps", "returns_ind", "won_ind", "pi_ind"}
