"""What the learners of all off-policy algorithms share: gradients of masked losses, steps, target copies."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from macpf import optim
from macpf.errors import require
from macpf.maths import masked_mean, soft_value, taken, td_lambda
from macpf.networks.mixers import Mixer
from macpf.optim import Optimiser, OptState
from macpf.types import Actions, Metrics, Observation, PRNGKey, Trajectory

Params = TypeVar("Params")
Rows = Mapping[str, Float[Array, " T"]]  # something at every step of an episode, by name
Lists = tuple[tuple[str, ...], ...]  # the networks that share the state of an optimiser


class LearnerState(eqx.Module):
    """The networks with their targets, the state of their optimisers, and the number of updates made."""

    networks: Any
    targets: Any
    optimisers: Mapping[str, OptState]
    updates: Int[Array, ""]


def check(gamma: float, lambda_: float, hidden: int, target_period: int) -> None:
    """Refuses hyper-parameters that no algorithm can work with."""
    require((gamma >= 0) & (gamma <= 1), f"gamma must be in [0, 1], not {gamma}")
    require((lambda_ >= 0) & (lambda_ <= 1), f"td_lambda must be in [0, 1], not {lambda_}")
    require(min(hidden, target_period) > 0, "hidden and target_period must be positive")


def fresh(networks: Any, targets: Any, optimiser: Optimiser, lists: Lists) -> LearnerState:
    """A learner that has not learned yet; `networks` is a NamedTuple."""
    optimisers = optim.init_lists(optimiser, networks._asdict(), lists)
    return LearnerState(networks, targets, optimisers, jnp.zeros((), jnp.int32))


def gradients(
    losses: Callable[[Params, Trajectory, PRNGKey], tuple[Rows, Rows]],
    params: Params,
    batch: Trajectory,
    key: PRNGKey,
) -> tuple[Params, Metrics]:
    """The gradient of the sum of all losses, each the mean over the valid steps of a batch.

    `losses` gives, for one episode, every loss and every metric at every step; their means come back too.
    """
    keys = jax.random.split(key, batch.mask.shape[0])
    mask = batch.mask[:, :-1]

    def total(params: Params) -> tuple[Float[Array, ""], Metrics]:
        rows, metrics = jax.vmap(losses, in_axes=(None, 0, 0))(params, batch, keys)
        means = {name: masked_mean(values, mask) for name, values in rows.items()}
        averages = {name: masked_mean(values, mask) for name, values in metrics.items()}
        return sum(means.values(), jnp.zeros(())), means | averages

    return jax.grad(total, has_aux=True)(params)


def improve(
    learner: LearnerState,
    gradients: Iterable[tuple[Optimiser, Mapping[str, Any]]],
    lists: Lists,
    targets: Callable[[Any], Any],
    period: int,
) -> LearnerState:
    """The learner after a step on each of the gradients (networks by name), and a target copy if due."""
    networks, optimisers = learner.networks._asdict(), learner.optimisers
    for optimiser, gradient in gradients:
        networks, optimisers = optim.descend_lists(optimiser, networks, gradient, optimisers, lists)
    moved, updates = type(learner.networks)(**networks), learner.updates + 1
    lagged = optim.lag(learner.targets, targets(moved), updates, period)
    return LearnerState(moved, lagged, optimisers, updates)


def learn(
    learner: LearnerState,
    losses: Callable[[Any, Trajectory, PRNGKey], tuple[Rows, Rows]],
    batch: Trajectory,
    key: PRNGKey,
    optimiser: Optimiser,
    lists: Lists,
    targets: Callable[[Any], Any],
    period: int,
) -> tuple[LearnerState, Metrics]:
    """One step on all losses at once: where no two losses move the same networks."""
    gradient, metrics = gradients(losses, learner.networks, batch, key)
    return improve(learner, [(optimiser, gradient._asdict())], lists, targets, period), metrics


def soft_target(
    episode: Trajectory,
    q_hat: Float[Array, " rows"],
    log_pi: Float[Array, "rows N"],
    alpha: Float[Array, ""],
    *,
    gamma: float,
    lambda_: float,
    reduce: Literal["mean", "sum"],
    terminal: Literal["bootstrap", "always"],
) -> Float[Array, " T"]:
    """What a critic should say: r + gamma (Q_hat(s', a') - alpha log pi(a'|s')), or its lambda-return."""
    returns = target(episode, q_hat, gamma, lambda_)
    log_pi_jt = jnp.sum(log_pi, axis=-1) if reduce == "sum" else jnp.mean(log_pi, axis=-1)
    on = 1.0 if terminal == "always" else gamma * (1.0 - episode.terminated[:-1])
    return returns - alpha * on * log_pi_jt[1:]


def target(
    episode: Trajectory, v_hat: Float[Array, " rows"], gamma: float, lambda_: float
) -> Float[Array, " T"]:
    """The lambda-return of an episode whose rows have these values: r + gamma V_hat(s') for lambda = 0."""
    return td_lambda(episode.reward[:-1], episode.terminated[:-1], episode.mask[:-1], v_hat, gamma, lambda_)


def mixed(
    mixer: Mixer,
    q: Float[Array, "rows N A"],
    actions: Actions,
    seen: Observation,
    alpha: Float[Array, ""],
) -> Float[Array, " rows"]:
    """The team's soft value of a joint action at every row of an episode, by the agents' soft values."""
    v = soft_value(q, seen.avail, alpha)
    return jax.vmap(mixer)(taken(q, actions), v, actions, seen.state)
