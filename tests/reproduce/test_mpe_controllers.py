"""The tables of the controllers: statistics by hand, and what is written."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from macpf.cli import main
from macpf.envs.mpe import SimpleSpread
from macpf.reproduce import mpe_controllers as the
from macpf.reproduce.mpe_controllers import TABLES, Convention, Score


def test_statistics_by_hand():
    convention = Convention("any", SimpleSpread(), 16, (("stay", -4.0),))
    score = Score(convention, "stay", np.asarray([-1.0, -3.0] * 8))
    assert (score.mean, score.std, score.half_width) == (-2.0, 1.0, 1.96 / 4)
    assert score.z == pytest.approx(2 / np.sqrt(2 / 16))
    other = Score(convention, "random", np.asarray([-1.0, -3.0]))
    assert (other.numpy, other.z) == (None, None)


def test_every_convention_has_its_own_name_and_task():
    for task, conventions in TABLES.items():
        assert len({c.name for c in conventions}) == len(conventions), task
        assert len({c.env for c in conventions}) == len(conventions), task


def test_what_is_printed_and_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    convention = Convention("short", SimpleSpread(horizon=2), 1000, (("stay", -16.5),))
    monkeypatch.setattr(the, "TABLES", {"mpe/simple-spread": (convention,)})
    monkeypatch.setattr(the, "CONTROLLERS", {name: the.CONTROLLERS[name] for name in ("stay", "random")})
    assert main(["reproduce", "mpe-controllers", "--seeds", "8", "--out", str(tmp_path)]) == 0
    assert "mpe/simple-spread" in capsys.readouterr().out
    written = json.loads((tmp_path / "scores.json").read_text())
    assert written["command"] == "macpf reproduce mpe-controllers --seeds 8"
    stay, random = written["scores"]["mpe/simple-spread"]
    returns = np.load(tmp_path / "returns.npz")["mpe/simple-spread|short|stay"]
    assert returns.shape == (8,)
    assert_allclose(stay["mean"], returns.mean(), rtol=1e-6)
    assert (stay["numpy"], random["numpy"]) == (-16.5, None)
    line = next(line for line in (tmp_path / "table.md").read_text().splitlines() if "short" in line)
    assert line.startswith(f"| short | {stay['mean']:.1f} ± {stay['half_width_95']:.1f} (-16.5) | ")


def test_a_scale_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "mpe-controllers", "--scale", "2"]) == 2
    assert "nothing is trained in mpe-controllers" in capsys.readouterr().err
