"""A check that an environment keeps the rules all else relies on, for those who write their own.

`check_env(MyTask())` is silent where all is well; the first thing found wrong is raised as one sentence.
"""

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from macpf.errors import UserError, require
from macpf.types import EnvSpec, Observation, PRNGKey, TimeStep

NOT_TRACEABLE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
)
TOLERANCE = 1e-4  # compiled code may round otherwise than code run line by line


class Way(NamedTuple):
    """One way to call a function of the environment; its failure is a sentence."""

    how: str
    function: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        try:
            return self.function(*args)
        except NOT_TRACEABLE as error:
            reason = f"Python code in it needs the value of an array ({type(error).__name__})"
            raise UserError(f"{self.how} fails, but must be traceable by JAX: {reason}") from error
        except Exception as error:
            reason = f"{type(error).__name__}: {(str(error).splitlines() or ['no message'])[0]}"
            raise UserError(f"{self.how} fails, but must work: {reason}") from error


class Ways(NamedTuple):
    """The ways to call one function, which must all give the same."""

    plain: Way
    jitted: Way
    mapped: Way


def check_env(env: Any, *, episodes: int = 4, seed: int = 0) -> None:
    """Plays random episodes and raises a `UserError` about the first rule that the environment breaks."""
    spec = _checked_spec(env)
    reset, step = _ways(env, "reset"), _ways(env, "step")
    for episode, key in enumerate(jax.random.split(jax.random.key(seed), episodes)):
        _check_episode(reset, step, spec, key, thorough=episode == 0)


def _checked_spec(env: Any) -> EnvSpec:
    spec = getattr(env, "spec", None)
    if not isinstance(spec, EnvSpec):
        raise UserError(f"env.spec is of type {type(spec).__name__}, but must be an EnvSpec")
    for field in fields(spec):
        size = getattr(spec, field.name)
        if field.name != "unit_dim":
            positive = isinstance(size, int) and size > 0
            require(positive, f"spec.{field.name} is {size!r}, but must be a positive int")
    fits = isinstance(spec.unit_dim, int) and 0 <= spec.n_agents * spec.unit_dim <= spec.state_dim
    require(
        fits,
        f"spec.unit_dim is {spec.unit_dim!r}, but {spec.n_agents} of it must fit a state of {spec.state_dim}",
    )
    return spec


def _ways(env: Any, name: str) -> Ways:
    function = getattr(env, name, None)
    if not callable(function):
        raise UserError(f"the environment has no method {name}, but must have one")
    return Ways(
        Way(name, function),
        Way(f"{name} under jax.jit", jax.jit(lambda *args: function(*args))),
        Way(f"{name} under jax.vmap", jax.jit(jax.vmap(lambda *args: function(*args)))),
    )


def _check_episode(reset: Ways, step: Ways, spec: EnvSpec, key: PRNGKey, thorough: bool) -> None:
    """One episode of random legal play; a thorough one calls every function in all ways at every step."""
    key, now, other = jax.random.split(key, 3)
    if thorough:
        _check_ways(reset, spec, (now,), (other,), "at reset")
    first = state, arrived = reset.jitted(now)
    _check_arrival(arrived, spec, "at reset")
    require(not _over(arrived), "terminated or truncated is true at reset, but both must be false")
    for when in (f"at step {t}" for t in range(1, spec.horizon + 1)):
        key, now, other, act, act_other = jax.random.split(key, 5)
        avail = arrived.observation.avail
        args = (state, _legal(act, avail), now)
        if thorough:
            _check_ways(step, spec, args, (state, _legal(act_other, avail), other), when)
        state, arrived = step.jitted(*args)
        _check_arrival(arrived, spec, when)
        _check_carry(first, (state, arrived), when)
        if _over(arrived):
            return
    raise UserError(f"the episode is not over at step {spec.horizon}, but must be at the horizon")


def _check_ways(ways: Ways, spec: EnvSpec, args: tuple, others: tuple, when: str) -> None:
    """The function gives what it should, and the same again, compiled, and side by side with another copy."""
    result = ways.plain(*args)
    _check_pair(ways.plain.how, result, when)
    _check_arrival(result[1], spec, when)
    alone = _frozen(result)
    _check_same(alone, ways.plain(*args), f"{ways.plain.how} called again", when)
    _check_same(alone, ways.jitted(*args), ways.jitted.how, when)
    both = ways.mapped(*jax.tree.map(lambda x, y: jnp.stack([x, y]), args, others))
    for row, own in enumerate((args, others)):
        copy = jax.tree.map(lambda x, row=row: x[row], both)
        _check_same(_frozen(ways.jitted(*own)), copy, ways.mapped.how, when)


def _check_pair(name: str, result: Any, when: str) -> None:
    pair = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], TimeStep)
    parts = result if isinstance(result, tuple) else (result,)
    found = ", ".join(type(part).__name__ for part in parts)
    require(pair, f"{name} returns ({found}) {when}, but must return (state, TimeStep)")
    for leaf in jax.tree.leaves(result[0]):
        if not isinstance(leaf, jax.typing.ArrayLike):
            raise UserError(f"state holds a {type(leaf).__name__} {when}, but must be of arrays alone")


def _check_arrival(arrived: TimeStep, spec: EnvSpec, when: str) -> None:
    """Shapes, dtypes and values of one time step."""
    kind = type(arrived.observation).__name__
    seen = isinstance(arrived.observation, Observation)
    require(seen, f"observation is of type {kind} {when}, but must be an Observation")
    n, a = spec.n_agents, spec.n_actions
    _check_field(arrived, "observation.obs", "float", (n, spec.obs_dim), when)
    _check_field(arrived, "observation.state", "float", (spec.state_dim,), when)
    _check_field(arrived, "observation.avail", "bool", (n, a), when)
    _check_field(arrived, "observation.visible", "bool", (n, n), when)
    _check_field(arrived, "reward", "float", (), when)
    for flag in ("terminated", "truncated", "won"):
        _check_field(arrived, flag, "bool", (), when)
    for agent, row in enumerate(np.asarray(arrived.observation.avail)):
        require(bool(row.any()), f"observation.avail[{agent}] is all false {when}, but one must be true")


def _check_field(arrived: TimeStep, name: str, kind: str, shape: tuple[int, ...], when: str) -> None:
    value = attrgetter(name)(arrived)
    must = f"must be {kind}{list(shape)}"
    if not isinstance(value, jax.Array | np.ndarray | np.number | np.bool_):
        raise UserError(f"{name} is of type {type(value).__name__} {when}, but {must}")
    right_kind = jnp.issubdtype(value.dtype, {"float": jnp.floating, "bool": jnp.bool_}[kind])
    require(
        right_kind and value.shape == shape, f"{name} is {value.dtype}{list(value.shape)} {when}, but {must}"
    )
    require(bool(jnp.all(jnp.isfinite(value))), f"{name} is not finite {when}, but must be")


def _check_carry(first: Any, later: Any, when: str) -> None:
    """What `step` returns is of the same make as what `reset` does, so that `lax.scan` can carry it."""
    one, two = jax.tree.structure(first[0]), jax.tree.structure(later[0])
    require(one == two, f"state has the structure {two} {when}, but must have that of reset, {one}")
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(first), jax.tree.leaves(later), strict=True):
        found, wanted = (f"{leaf.dtype}{list(leaf.shape)}" for leaf in (y, x))
        require(found == wanted, f"{_name(path)} is {found} {when}, but must be {wanted} as at reset")


def _check_same(alone: Any, result: Any, how: str, when: str) -> None:
    result = _frozen(result)
    same = jax.tree.structure(alone) == jax.tree.structure(result)
    require(same, f"{how} gives another structure {when}, but must give the same")
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(alone), jax.tree.leaves(result), strict=True):
        slack = TOLERANCE if x.dtype.kind == "f" else 0
        same = x.shape == y.shape and np.allclose(x, y, slack, slack, equal_nan=True)
        require(same, f"{how} gives another {_name(path)} {when}, but must give the same")


def _frozen(tree: Any) -> Any:
    """A copy in numpy that nothing done to the original can change."""

    def copy(leaf: Any) -> np.ndarray:
        leaf = jnp.asarray(leaf)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        return np.array(leaf, np.float64 if jnp.issubdtype(leaf.dtype, jnp.floating) else None)

    return jax.tree.map(copy, tree)


def _name(path: tuple[Any, ...]) -> str:
    """How a user calls a leaf of (state, TimeStep)."""
    rest = jax.tree_util.keystr(path[1:])
    return f"state{rest}" if path[0].idx == 0 else rest.lstrip(".")


def _legal(key: PRNGKey, avail: Any) -> jax.Array:
    """A random available action of every agent."""
    return jax.random.categorical(key, jnp.where(avail, 0.0, -jnp.inf)).astype(jnp.int32)


def _over(arrived: TimeStep) -> bool:
    return bool(arrived.terminated | arrived.truncated)
