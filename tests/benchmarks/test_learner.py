"""The benchmark runs, and says what it measured."""

import json
from pathlib import Path

import numpy as np
import pytest

from macpf.benchmarks import learner
from macpf.benchmarks.learner import Shape


def test_the_benchmark_writes_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(learner, "SHAPES", (Shape("tiny", 2, 3, 4, 5, 3, 2),))
    learner.main((1, 2), seconds=0.01, out=tmp_path / "learner.json")
    result = json.loads((tmp_path / "learner.json").read_text())
    (row,) = result["rows"]
    assert set(row["ms"]) == {"1", "2"}
    assert all(ms > 0 for ms in row["ms"].values())
    assert "tiny" in capsys.readouterr().out


def test_random_batches_are_legal() -> None:
    batch = learner.random_batch(Shape("tiny", 3, 4, 5, 6, 7, 2))
    chosen = np.take_along_axis(
        np.asarray(batch.observation.avail), np.asarray(batch.actions)[..., None], axis=-1
    )
    assert chosen.all()
    assert batch.mask.sum() == 2 * 7
