"""The benchmark runs, and says what it measured."""

import json
from pathlib import Path

import numpy as np
import pytest

from macpf.algorithms import ALGORITHMS
from macpf.benchmarks import learner
from macpf.benchmarks.learner import Shape
from macpf.errors import UserError


def test_the_benchmark_writes_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        learner, "SHAPES", (Shape("tiny", 2, 3, 4, 5, 3, 2), Shape("crowd", 20, 2, 1, 1, 1, 1))
    )
    learner.main((1, 2), seconds=0.01, out=tmp_path / "learner.json", algorithms=("central", "vdn"))
    rows = json.loads((tmp_path / "learner.json").read_text())["rows"]
    times = {(row["algorithm"], row["shape"]["name"]): row["ms"] for row in rows}
    assert all(set(ms) == {"1", "2"} for ms in times.values())
    assert times.pop(("central", "crowd")) == {"1": None, "2": None}, "a million joint actions are too many"
    assert all(ms > 0 for row in times.values() for ms in row.values())
    assert "tiny" in capsys.readouterr().out


def test_an_unknown_algorithm_is_not_timed() -> None:
    with pytest.raises(UserError, match="did you mean vdn"):
        learner.main((1,), seconds=0.01, out=None, algorithms=("vdm",))


@pytest.mark.parametrize("name", ["macpf", "macpf-plus", "fop", "qmix", "qtran", "mappo", "central"])
def test_every_kind_of_algorithm_can_be_timed(name: str) -> None:
    assert learner.time_update(ALGORITHMS[name].make(), Shape("tiny", 2, 3, 4, 5, 3, 2), 1, 0.01) > 0


def test_random_batches_are_legal() -> None:
    batch = learner.random_batch(Shape("tiny", 3, 4, 5, 6, 7, 2))
    chosen = np.take_along_axis(
        np.asarray(batch.observation.avail), np.asarray(batch.actions)[..., None], axis=-1
    )
    assert chosen.all()
    assert batch.mask.sum() == 2 * 7
