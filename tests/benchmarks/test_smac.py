"""The benchmark of SMAC's maps: it times, writes what it timed, and plays by the rules."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from macpf.benchmarks import smac, smax
from macpf.benchmarks.smac import legal
from macpf.cli import main


@pytest.fixture(autouse=True)
def ranks():
    """SMAX adds arrays of different ranks, in whatever thread it is compiled."""
    jax.config.update("jax_numpy_rank_promotion", "allow")
    yield
    jax.config.update("jax_numpy_rank_promotion", "raise")  # as everywhere else (conftest.py)


def test_every_available_action_is_drawn_and_no_other():
    avail = jnp.asarray([[True, False, True, True], [False, True, False, False]])
    keys = jax.random.split(jax.random.key(0), 200)
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: legal(key, avail)))(keys))
    assert set(drawn[:, 0]) == {0, 2, 3}
    assert set(drawn[:, 1]) == {1}


@pytest.mark.parametrize(("copies", "steps"), [(1, 32), (1024, 32), (8192, 4), (100_000, 1)])
def test_a_call_does_not_last_for_ever_however_many_copies_there_are(copies: int, steps: int):
    assert smac.in_a_row(copies) == steps


def test_it_writes_what_it_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "smac.json"
    args = ["--maps", "3m", "--copies", "2", "--seconds", "0.01", "--out", str(out)]
    assert main(["bench", "smac", *args]) == 0
    assert "3m" in capsys.readouterr().out
    found = json.loads(out.read_text())
    (row,) = found["rows"]
    assert (row["map"], row["copies"]) == ("3m", 2)
    assert row["steps"] > 0
    assert (row["smax"] is None) == (not smax.installed())
    assert {"command", "device", "versions"} <= found.keys()


def test_a_peer_plays_as_many_units(monkeypatch: pytest.MonkeyPatch):
    """Told that SMAX is there, the benchmark times what it is given for the units of the map."""
    units: list[tuple[int, int]] = []

    def battles(allies: int, enemies: int):
        units.append((allies, enemies))
        return (lambda key: jnp.zeros(())), (lambda carry, key: carry + 1)

    monkeypatch.setattr(smax, "installed", lambda: True)
    monkeypatch.setattr(smax, "battles", battles)
    _, theirs = smac.rivals("27m_vs_30m", 2)
    assert theirs is not None
    assert smac.speed(theirs, 2, 0.01).steps > 0
    assert units == [(27, 30)]


@pytest.mark.skipif(not smax.installed(), reason="JaxMARL is not installed")
def test_smax_battles_go_on():
    begin, go_on = smax.battles(2, 3)
    first = jax.jit(begin)(jax.random.key(0))
    after = jax.jit(go_on)(first, jax.random.key(1))
    assert int(after[0].state.step) > int(first[0].state.step)


@pytest.mark.parametrize(
    ("args", "said"), [(["--maps", "9m"], "did you mean"), (["--copies", "0"], "a copy at least")]
)
def test_mistakes_are_one_sentence(args: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    assert main(["bench", "smac", *args]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1
