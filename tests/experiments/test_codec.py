"""Experiments survive JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import macpf
from macpf.experiments.codec import decode, encode

SCHEDULES = (
    macpf.Constant(0.3),
    macpf.Linear(1.0, 0.1, 7, unit_slope=True),
    macpf.Exponential(1.0, 0.2, 0.9),
)
OPTIMISERS = (macpf.RMSprop(), macpf.Adam(1e-3))
ENVIRONMENTS = (
    macpf.MatrixGame(),
    macpf.MatrixGame((((1.0,), (2.0,)), ((3.0,), (4.0,)))),
    macpf.MultiGoal(horizon=7),
    macpf.SimpleSpread(spread_reward="local-ratio", integration="position-first"),
    macpf.LineControl(n_agents=4, time_limit="terminal"),
)


@given(
    st.booleans(),
    st.sampled_from(OPTIMISERS),
    st.sampled_from(SCHEDULES),
    st.one_of(st.none(), st.integers(1, 5)),
    st.sampled_from(ENVIRONMENTS),
)
def test_what_is_read_is_what_was_written(recurrent, optimiser, schedule, groups, env) -> None:
    algorithm = macpf.MACPF(recurrent=recurrent, optimiser=optimiser, alpha=schedule, groups=groups)
    experiment = macpf.Experiment("macpf", "any", algorithm, env)
    assert decode(json.loads(json.dumps(encode(experiment)))) == experiment


def test_reading_executes_nothing_unknown() -> None:
    with pytest.raises(macpf.UserError, match="does not know"):
        decode({"type": "Popen", "args": "true"})


def test_values_are_checked_on_reading() -> None:
    with pytest.raises(macpf.UserError, match="learning rate must be positive"):
        decode(encode(macpf.RMSprop()) | {"lr": -1.0})
