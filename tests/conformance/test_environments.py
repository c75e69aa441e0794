"""Every task keeps the rules, and an environment that breaks one is told which."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from macpf.envs import TASKS, make
from macpf.envs.check import check_env
from macpf.envs.smac import SMAC
from macpf.errors import UserError
from macpf.types import EnvSpec, Observation, PRNGKey, TimeStep

SPEC = EnvSpec(n_agents=2, n_actions=3, obs_dim=4, state_dim=5, horizon=3)
Pair = tuple[Any, Any]


MAPS = ("smac/MMM",)  # of SMAC's 25 maps one that has every optional feature


@pytest.mark.parametrize("task", [task for task in TASKS if not task.startswith("smac/") or task in MAPS])
def test_every_task_keeps_the_rules(task):
    env = make(task)
    if isinstance(env, SMAC):  # run line by line, every step of it takes seconds
        env = SMAC(replace(env.scenario, limit=2))
    check_env(env)


@dataclass
class Counter:
    """An environment that counts to its horizon, and what to change in what it returns."""

    spec: Any = SPEC
    at_reset: Callable[[Any, TimeStep], Any] = lambda state, arrived: (state, arrived)
    at_step: Callable[[Any, TimeStep], Any] = lambda state, arrived: (state, arrived)
    calls: list[int] = field(default_factory=list)

    def reset(self, key: PRNGKey) -> Any:
        return self.at_reset(*self._arrive(jnp.asarray(0), jax.random.normal(key)))

    def step(self, state: Any, actions: Any, key: PRNGKey) -> Any:
        return self.at_step(*self._arrive(state + 1, jnp.sum(actions) + jax.random.normal(key)))

    def _arrive(self, time: Any, reward: Any) -> Pair:
        now = jnp.asarray(time, jnp.float32)
        seen = Observation(
            jnp.full((2, 4), now),
            jnp.full(5, now),
            jnp.asarray([[True, False, True], [False, True, True]]),
            jnp.ones((2, 2), bool),
        )
        no = jnp.asarray(False)
        return time, TimeStep(seen, reward, no, jnp.asarray(time >= 3), no)


def test_a_right_one_passes():
    check_env(Counter())


class Shy(Counter):
    """Asks that actions be legal; an illegal one makes the reward infinite."""

    def step(self, state, actions, key):
        legal = jnp.asarray([[True, False, True], [False, True, True]])[jnp.arange(2), actions].all()
        return put("reward", lambda r: jnp.where(legal, r, jnp.inf))(*super().step(state, actions, key))


def test_play_is_legal():
    check_env(Shy(), episodes=8)


def put(where: str, change: Callable[[Any], Any]) -> Callable[[Any, TimeStep], Pair]:
    """Changes one field of the time step, past all checks of its own."""

    def find(arrived: TimeStep) -> Any:
        return getattr(arrived, where) if hasattr(arrived, where) else getattr(arrived.observation, where)

    def altered(state: Any, arrived: TimeStep) -> Pair:
        return state, eqx.tree_at(find, arrived, replace_fn=change, is_leaf=lambda x: x is None)

    return altered


def when(time: int, alter: Callable[[Any, TimeStep], Pair]) -> Callable[[Any, TimeStep], Pair]:
    """Alters the time step of one time alone."""

    def altered(state: Any, arrived: TimeStep) -> Pair:
        other = alter(state, arrived)
        return jax.tree.map(lambda new, old: jnp.where(state == time, new, old), other, (state, arrived))

    return altered


WRONG_FIELDS = [
    ("obs", lambda x: x[:, :3], r"observation\.obs is float32\[2, 3\] at reset, but must be float\[2, 4\]"),
    (
        "obs",
        lambda x: x.astype(int),
        r"observation\.obs is int32\[2, 4\] at reset, but must be float\[2, 4\]",
    ),
    ("state", lambda x: x[None], r"observation\.state is float32\[1, 5\] at reset, but must be float\[5\]"),
    ("avail", lambda x: 1.0 * x, r"observation\.avail is float32\[2, 3\] at reset, but must be bool\[2, 3\]"),
    ("visible", lambda x: x[0], r"observation\.visible is bool\[2\] at reset, but must be bool\[2, 2\]"),
    ("reward", lambda x: x[None], r"reward is float32\[1\] at reset, but must be float\[\]"),
    ("reward", lambda x: 0, r"reward is of type int at reset, but must be float\[\]"),
    ("terminated", lambda x: x.astype(int), r"terminated is int32\[\] at reset, but must be bool\[\]"),
    ("truncated", lambda x: x[None], r"truncated is bool\[1\] at reset, but must be bool\[\]"),
    ("won", lambda x: jnp.zeros(()), r"won is float32\[\] at reset, but must be bool\[\]"),
    (
        "observation",
        lambda x: jnp.zeros(3),
        "observation is of type ArrayImpl at reset, but must be an Observation",
    ),
    ("terminated", lambda x: ~x, "terminated or truncated is true at reset, but both must be false"),
]


@pytest.mark.parametrize(("where", "change", "sentence"), WRONG_FIELDS)
def test_a_wrong_field_at_reset_is_named(where, change, sentence):
    with pytest.raises(UserError, match=f"^{sentence}$"):
        check_env(Counter(at_reset=put(where, change)))


def nan_at(x: jax.Array) -> jax.Array:
    return x.at[..., 0].set(jnp.nan)


WRONG_STEPS = [
    (put("reward", lambda x: x[None]), r"reward is float32\[1\] at step 1, but must be float\[\]"),
    (when(2, put("reward", lambda x: x / 0)), "reward is not finite at step 2, but must be"),
    (when(3, put("obs", nan_at)), r"observation\.obs is not finite at step 3, but must be"),
    (when(1, put("state", nan_at)), r"observation\.state is not finite at step 1, but must be"),
    (
        when(2, put("avail", lambda x: x.at[1].set(False))),
        r"observation\.avail\[1\] is all false at step 2, but one must be true",
    ),
    (put("truncated", lambda x: x & False), "the episode is not over at step 3, but must be at the horizon"),
    (
        put("obs", lambda x: x.astype(jnp.float16)),
        r"observation\.obs is float16\[2, 4\] at step 1, but must be float32\[2, 4\] as at reset",
    ),
    (
        lambda state, arrived: (1.0 * state, arrived),
        r"state is float32\[\] at step 1, but must be int32\[\] as at reset",
    ),
    (
        lambda state, arrived: (jnp.full(1, state), arrived),
        r"state is int32\[1\] at step 1, but must be int32\[\] as at reset",
    ),
    (
        lambda state, arrived: ((state, state), arrived),
        r"state has the structure .* at step 1, but must have that of reset, .*",
    ),
    (
        lambda state, arrived: arrived,
        r"step returns \(TimeStep\) at step 1, but must return \(state, TimeStep\)",
    ),
    (
        lambda state, arrived: (state, arrived, {}),
        r"step returns \(ArrayImpl, TimeStep, dict\) at step 1, but must return \(state, TimeStep\)",
    ),
    (lambda state, arrived: (state, None), r"step returns \(ArrayImpl, NoneType\) at step 1, .*"),
    (
        lambda state, arrived: ("now", arrived),
        "state holds a str at step 1, but must be of arrays alone",
    ),
]


@pytest.mark.parametrize(("alter", "sentence"), WRONG_STEPS)
def test_a_wrong_step_is_named(alter, sentence):
    with pytest.raises(UserError, match=f"^{sentence}$"):
        check_env(Counter(at_step=alter))


def branches(state, arrived):
    if state > 3:
        raise ValueError("it goes on for ever")
    return state, arrived


def to_numpy(state, arrived):
    return jnp.asarray(np.asarray(state)), arrived


def to_int(state, arrived):
    return jnp.asarray(int(state)), arrived


def picks_by_mask(state, arrived):
    return state + 0 * jnp.sum(arrived.observation.obs[arrived.observation.obs > 0]).astype(int), arrived


@pytest.mark.parametrize("alter", [branches, to_numpy, to_int, picks_by_mask])
def test_what_cannot_be_traced_is_a_sentence(alter):
    sentence = "step under jax.jit fails, but must be traceable by JAX: Python code in it needs the value"
    with pytest.raises(UserError, match=sentence):
        check_env(Counter(at_step=alter))


def test_a_failure_is_a_sentence():
    with pytest.raises(UserError, match=r"^step fails, but must work: ZeroDivisionError: .*"):
        check_env(Counter(at_step=lambda state, arrived: 1 / 0))


class Forgetful(Counter):
    """Counts its calls, and pays for them."""

    def step(self, state, actions, key):
        self.calls.append(1)
        return put("reward", lambda r: r + len(self.calls))(*super().step(state, actions, key))


def test_a_side_effect_is_named():
    with pytest.raises(UserError, match=r"^step called again gives another reward at step 1"):
        check_env(Forgetful())


def test_luck_that_is_not_of_the_key_is_named():
    luck = np.random.default_rng(0)
    with pytest.raises(UserError, match=r"^reset called again gives another reward at reset"):
        check_env(Counter(at_reset=put("reward", lambda r: r + luck.random())))


class Mutable(Counter):
    """Changes the state that it was given."""

    def reset(self, key):
        time, arrived = super().reset(key)
        return {"time": time}, arrived

    def step(self, state, actions, key):
        state["time"], arrived = super().step(state["time"], actions, key)
        return state, arrived


def test_a_state_changed_in_place_is_named():
    with pytest.raises(UserError, match=r"^step called again gives another state\['time'\] at step 1"):
        check_env(Mutable())


class Leaky(Counter):
    """Keeps what it saw in an attribute."""

    def step(self, state, actions, key):
        last = getattr(self, "last", 0)
        self.last = state
        return super().step(state + 0 * last, actions, key)


def test_a_leaked_value_is_a_sentence():
    with pytest.raises(
        UserError, match=r"^step( under jax.vmap)? fails, but must work: UnexpectedTracerError"
    ):
        check_env(Leaky())


def test_another_result_under_jit_is_named():
    def two_faced(state, arrived):
        return put("reward", lambda r: r + ("Tracer" in type(state).__name__))(state, arrived)

    with pytest.raises(UserError, match=r"^step under jax.jit gives another reward at step 1"):
        check_env(Counter(at_step=two_faced))


def test_another_result_under_vmap_is_named():
    @jax.custom_batching.custom_vmap
    def same(x):
        return x

    @same.def_vmap
    def _(size, batched, x):
        return x + 1, batched[0]

    with pytest.raises(UserError, match=r"^step under jax.vmap gives another reward at step 1"):
        check_env(Counter(at_step=put("reward", same)))


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (None, "env.spec is of type NoneType, but must be an EnvSpec"),
        ({"n_agents": 2}, "env.spec is of type dict, but must be an EnvSpec"),
        (EnvSpec(2, 0, 4, 5, 3), "spec.n_actions is 0, but must be a positive int"),
        (EnvSpec(2, 3, 4, 5, 6, -1), "spec.unit_dim is -1, but 2 of it must fit a state of 5"),
        (EnvSpec(2, 3, 4, 5, 6, 3), "spec.unit_dim is 3, but 2 of it must fit a state of 5"),
        (EnvSpec(2, 3, 4, 5, -1), "spec.horizon is -1, but must be a positive int"),
    ],
)
def test_a_wrong_spec_is_named(spec, sentence):
    with pytest.raises(UserError, match=f"^{sentence}$"):
        check_env(Counter(spec=spec))


def test_a_missing_method_is_named():
    @dataclass
    class Nothing:
        spec: EnvSpec = SPEC

    with pytest.raises(UserError, match=r"^the environment has no method reset, but must have one$"):
        check_env(Nothing())
