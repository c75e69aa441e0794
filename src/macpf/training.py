"""Training: a pure function from a key to a learner and its history.

`train` is the whole of it, one compiled program; seeds are `jax.vmap` over keys. A driver that wants to
log, checkpoint and be interrupted calls the same `begin` and `epoch` one after the other instead.
The whole training state is one value: saving it is resuming exactly.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from macpf import replay as replays
from macpf.evaluation import Evaluation, rollouts, score
from macpf.experiments.experiment import Experiment
from macpf.replay import Replay
from macpf.rollout import play
from macpf.types import Metrics, PRNGKey

EVALUATION_SEED = 2023  # every evaluation of every run of a task meets the same episodes


class TrainState(eqx.Module):
    """All there is to know about a run at one moment; counters are of steps, episodes and updates so far."""

    learner: Any
    replay: Replay
    key: Key[Array, "*seeds"]
    steps: Int[Array, "*seeds"]
    episodes: Int[Array, "*seeds"]
    updates: Int[Array, "*seeds"]


class Record(eqx.Module):
    """What one evaluation found: counters, the scores of every policy, the means of the learner's metrics."""

    steps: Int[Array, "*seeds"]
    episodes: Int[Array, "*seeds"]
    updates: Int[Array, "*seeds"]
    scores: dict[str, Evaluation]
    metrics: dict[str, Float[Array, "*seeds"]]


def train(experiment: Experiment[Any, Any], key: PRNGKey) -> tuple[TrainState, Record]:
    """A whole run: the final state, and the record of every epoch.

    A compiled program must know their number: it is enough for `steps` where no episode ends early. Who
    drives `epoch` from Python asks `experiment.goes_on` instead.
    """
    state = begin(experiment, key)
    return jax.lax.scan(lambda state, _: epoch(experiment, state), state, length=experiment.epochs)


def begin(experiment: Experiment[Any, Any], key: PRNGKey) -> TrainState:
    """A fresh learner, and a replay with the episodes it starts from."""
    learner_key, key = jax.random.split(key)
    spec = experiment.env.spec
    zero = jnp.zeros((), jnp.int32)
    state = TrainState(
        learner=experiment.algorithm.init(learner_key, spec),
        replay=replays.empty(spec, experiment.remembered, experiment.replay_half),
        key=key,
        steps=zero,
        episodes=zero,
        updates=zero,
    )
    return jax.lax.fori_loop(0, experiment.warm_up_iterations, lambda _, s: collect(experiment, s), state)


def epoch(experiment: Experiment[Any, Any], state: TrainState) -> tuple[TrainState, Record]:
    """Training up to the next evaluation, and that evaluation."""
    length = experiment.iterations_per_epoch
    state, metrics = jax.lax.scan(lambda state, _: iterate(experiment, state), state, length=length)
    means = {name: jnp.mean(values) for name, values in metrics.items()}
    scores = evaluate(experiment, state.learner)
    return state, Record(state.steps, state.episodes, state.updates, scores, means)


def iterate(experiment: Experiment[Any, Any], state: TrainState) -> tuple[TrainState, Metrics]:
    """One round of play in all parallel environments, then the updates those episodes have earned."""
    state = collect(experiment, state)
    key, updates_key = jax.random.split(state.key)
    count = experiment.updates_per_iteration
    keys = jax.vmap(jax.random.split)(jax.random.split(updates_key, count))
    if experiment.algorithm.on_policy:
        drawn = jnp.arange(experiment.parallel)[None]
    else:
        drawn = jax.vmap(lambda key: state.replay.draw(key, experiment.batch))(keys[:, 0])

    def update(learner: Any, given: tuple[Array, PRNGKey]) -> tuple[Any, Metrics]:
        where, key = given
        return experiment.algorithm.update(learner, state.replay.take(where), key, state.steps)

    learner, metrics = jax.lax.scan(update, state.learner, (drawn, keys[:, 1]))
    means = {name: jnp.mean(values) for name, values in metrics.items()}
    state = TrainState(learner, state.replay, key, state.steps, state.episodes, state.updates + count)
    return state, means


def collect(experiment: Experiment[Any, Any], state: TrainState) -> TrainState:
    """One episode of every parallel environment, remembered."""
    key, play_key = jax.random.split(state.key)
    memory = experiment.algorithm.init_memory(experiment.env.spec)

    def act(memory, observation, key):
        return experiment.algorithm.explore(state.learner, memory, observation, key, state.steps)

    keys = jax.random.split(play_key, experiment.parallel)
    episodes = jax.vmap(lambda key: play(experiment.env, act, memory, key))(keys)
    learned_from = eqx.tree_at(lambda e: e.reward, episodes, experiment.reward_factor * episodes.reward)
    return TrainState(
        learner=state.learner,
        replay=state.replay.add(learned_from),
        key=key,
        steps=state.steps + jnp.sum(episodes.mask, dtype=jnp.int32),
        episodes=state.episodes + experiment.parallel,
        updates=state.updates,
    )


def evaluate(experiment: Experiment[Any, Any], learner: Any) -> dict[str, Evaluation]:
    """The greedy score of every policy the algorithm has, on the same episodes each time."""
    key = jax.random.key(EVALUATION_SEED)
    episodes = experiment.eval_episodes
    return {
        name: score(
            rollouts(experiment.algorithm, experiment.env, learner, key, policy=name, episodes=episodes)
        )
        for name in experiment.algorithm.policies
    }
