"""The paper's settings as values: one experiment for every algorithm and task."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from macpf.algorithms import ALGORITHMS
from macpf.algorithms.macpf import MACPF
from macpf.algorithms.value import ValueDecomposition
from macpf.envs import TASKS, make
from macpf.errors import unknown
from macpf.experiments.experiment import Experiment
from macpf.networks.mixers import Advantage, Duplex
from macpf.schedules import Constant, Exponential, Linear
from macpf.types import Algorithm, Environment

PRESETS = ("default", "paper", "authors")
SUPER_HARD = ("MMM2", "corridor", "3s5z_vs_3s6z", "27m_vs_30m", "6h_vs_8z")  # of SMAC's maps, by the paper


def experiment(algorithm: str, task: str | Environment[Any], preset: str = "default") -> Experiment[Any, Any]:
    """The preset experiment of an algorithm on a task, named or your own.

    "paper" follows the paper where it is explicit, "authors" its published code, and "default" the paper
    where its theory depends on it and the code elsewhere (docs/architecture.md has the table).
    """
    if algorithm not in ALGORITHMS:
        raise unknown("algorithm", algorithm, ALGORITHMS)
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    learner = ALGORITHMS[algorithm].make()
    if isinstance(task, str):
        env, name, shape = make(task), task, FAMILIES[task]
    else:
        env, name, shape = task, type(task).__name__, _own_task
    made = shape(Experiment(algorithm, name, learner, env))
    if preset == "default":
        return _swept(made) if name.startswith("mpe/") else made
    return replace(made, algorithm=_as_in(preset, made.algorithm))


def _matrix_game(e: Experiment[Any, Any]) -> Experiment[Any, Any]:
    """One hidden layer, lr 3e-4, batches of 64, temperature 1 -> 0.5 times 0.999 an episode.

    Q-learners explore with epsilon 1 -> 0.01, times 0.999 an episode; soft policies have no epsilon.
    macpf-plus is ours, and so are its width, its learning rates, exploration that lasts longer, and a memory
    of the whole training.
    """
    made = with_values(
        e.algorithm,
        recurrent=False,
        optimiser=replace(e.algorithm.optimiser, lr=3e-4),
        alpha=Exponential(1.0, 0.5, 0.999),
        epsilon=Exponential(1.0, 0.01, 0.999),
        layers=1,
    )
    algorithm = _qplex(made, Duplex(heads=10, layers=3))
    if isinstance(algorithm, MACPF) and algorithm.extraction == "committed":
        algorithm = replace(
            algorithm,
            hidden=128,
            optimiser=replace(algorithm.optimiser, lr=1e-3),
            critic_speed=3.0,
            delta=1.0,
            epsilon=Exponential(1.0, 0.01, 0.99995),
            epsilon_mode="behaviour",
        )
        e = replace(e, replay=10_000)
    parallel = 32 if algorithm.on_policy else 1
    sizes = {"steps": 10_000, "parallel": parallel, "batch": 64, "burn_in": 64, "eval_every": 100}
    return replace(e, algorithm=algorithm, eval_episodes=1, **sizes)


def _multi_goal(e: Experiment[Any, Any]) -> Experiment[Any, Any]:
    """No memory, one-step targets, and a temperature of the joint policy at which all four modes count.

    How even the modes are is decided by the critics' last errors, so learning rates fall to nothing; and
    episodes of training begin all over the square, since a point that must be moved together hardly moves
    by chance.
    """
    updates = 30_000
    made = with_values(
        e.algorithm,
        recurrent=False,
        gamma=0.9,
        alpha=Constant(0.4),
        td_lambda=0.0,
        entropy_reduce="sum",
        target_period=50,
    )
    if not made.on_policy:
        made = replace(made, optimiser=replace(made.optimiser, lr=4e-3, anneal=updates))
    if isinstance(made, MACPF) and made.extraction == "committed":
        slower = replace(made.optimiser, lr=2e-3)
        made = replace(made, optimiser=slower, critic_speed=2.0, delta=0.6, alpha_ind=0.2)
    env = replace(e.env, start_spread=3.0)
    parallel = 32 if made.on_policy else 8
    sizes = {"steps": updates * env.horizon, "parallel": parallel, "batch": 64, "burn_in": 100}
    return replace(e, algorithm=made, env=env, eval_every=12_000, **sizes)


def _mpe(e: Experiment[Any, Any]) -> Experiment[Any, Any]:
    """Recurrent agents, batches of 64, temperature 0.5 -> 0.05 and epsilon 1 -> 0.05 in 50,000 steps.

    Learners see a tenth of simple spread's reward: returns of -120 to -220 would drown these temperatures;
    rewards of the other tasks are smaller. MAPPO, which normalises returns by itself, as its authors run
    simple spread: tanh, 128 environments, what an agent sees and no more. macpf-plus has a larger network for
    the value of the state, which all its targets come from.
    """
    made = _own_task(e)
    if isinstance(made.algorithm, MACPF) and made.algorithm.extraction == "committed":
        made = replace(made, algorithm=replace(made.algorithm, mixer=Advantage(hidden=256, layers=2)))
    if not made.algorithm.on_policy:
        return replace(made, reward_factor=0.1 * PARTICLE_SIZE[made.task], batch=64, parallel=32)
    optimiser = replace(made.algorithm.optimiser, lr=7e-4)
    algorithm = replace(made.algorithm, optimiser=optimiser, activation="tanh", own_inputs=False)
    return replace(made, algorithm=algorithm, parallel=128)


# How much larger factors of the reward are where rewards are smaller, so that values are of one size.
PARTICLE_SIZE = {"mpe/simple-spread": 1.0, "mpe/formation-control": 10.0, "mpe/line-control": 10.0}

# Learning rate, discount and lambda of a method on the particle tasks: the best of a sweep that is the same
# for all, or the learning rate that is better in whole trainings (docs/results/mpe.md); methods that were not
# swept are set like MACPF.
PARTICLE_BEST: Mapping[str, tuple[float, float, float]] = {
    "macpf": (1e-3, 0.8, 0.0),
    "macpf-plus": (1e-3, 0.8, 0.0),
    "macpf-control": (2e-3, 0.8, 0.0),
    "qmix": (1e-3, 0.8, 0.0),
    "qplex": (2e-3, 0.9, 0.0),
    "fop": (2e-3, 0.8, 0.8),
    "vdn": (1e-3, 0.8, 0.8),
    "mappo": (1e-3, 0.8, 0.8),
}


def _swept(e: Experiment[Any, Any]) -> Experiment[Any, Any]:
    """A particle task under the best setting found; learning rates fall to nothing, save that of MAPPO.

    MAPPO's agents are told who they are: where they do not see each other, nothing else could part them.
    """
    lr, gamma, ahead = PARTICLE_BEST.get(e.name, PARTICLE_BEST["macpf"])
    anneal = 0 if e.algorithm.on_policy else e.updates
    algorithm = with_values(
        e.algorithm,
        optimiser=replace(e.algorithm.optimiser, lr=lr, anneal=anneal),
        gamma=gamma,
        td_lambda=ahead,
        gae_lambda=ahead,
        own_inputs=True,
    )
    return replace(e, algorithm=algorithm, reward_factor=0.3 * PARTICLE_SIZE[e.task])


def _smac(e: Experiment[Any, Any]) -> Experiment[Any, Any]:
    """Recurrent agents, batches of 32, temperature 0.5 -> 0.05 in 200,000 steps; 0.001 on super-hard maps.

    Q-learners explore with epsilon 1 -> 0.05 in 50,000 steps, and so does MACPF, as in its published code,
    but in its behaviour alone. Observations are remembered in half precision.
    """
    made = _own_task(e)
    hard = made.task.removeprefix("smac/") in SUPER_HARD
    alpha = Constant(0.001) if hard else Linear(0.5, 0.05, 200_000)
    algorithm = with_values(made.algorithm, alpha=alpha)
    return replace(made, algorithm=algorithm, replay_half=True, parallel=32)


def _own_task(e: Experiment[Any, Any]) -> Experiment[Any, Any]:
    """Recurrent agents, exploration on, the temperature and exploration of the paper's MPE tasks."""
    algorithm = with_values(
        e.algorithm,
        alpha=Linear(0.5, 0.05, 50_000),
        epsilon=Linear(1.0, 0.05, 50_000),
        epsilon_mode="behaviour",
    )
    return replace(e, algorithm=algorithm, parallel=32 if algorithm.on_policy else 1)


FAMILIES: Mapping[str, Callable[[Experiment[Any, Any]], Experiment[Any, Any]]] = {
    "matrix-game": _matrix_game,
    "multi-goal": _multi_goal,
    "mpe/simple-spread": _mpe,
    "mpe/formation-control": _mpe,
    "mpe/line-control": _mpe,
    **dict.fromkeys((task for task in TASKS if task.startswith("smac/")), _smac),
}
assert FAMILIES.keys() == TASKS.keys(), "every task needs its settings"


def with_values(algorithm: Algorithm[Any], **values: Any) -> Any:
    """The algorithm with those of the values that it has a field for."""
    known = {field.name for field in fields(algorithm)}  # type: ignore[arg-type]
    return replace(algorithm, **{name: v for name, v in values.items() if name in known})  # type: ignore[type-var]


def _qplex(algorithm: Any, mixer: Duplex) -> Any:
    """QPLEX with the mixer its authors use for a family of tasks; others as they are."""
    is_qplex = isinstance(algorithm, ValueDecomposition) and isinstance(algorithm.mixer, Duplex)
    return replace(algorithm, mixer=mixer) if is_qplex else algorithm


def _as_in(preset: str, algorithm: Any) -> Any:
    """MACPF as the paper or its published code reads it; other algorithms have one reading."""
    if preset == "default" or not isinstance(algorithm, MACPF):
        return algorithm
    if preset == "paper":
        return replace(algorithm, td_lambda=0.0, entropy_reduce="sum", dep_mask="all", epsilon_mode="none")
    alpha = algorithm.alpha
    return replace(
        algorithm,
        td_lambda=0.8,
        entropy_reduce="mean",
        entropy_terminal="always",
        dep_grad_through_trunk=True,
        critic_dep_scope="visible",
        dep_mask="visible",
        alpha=replace(alpha, unit_slope=True) if isinstance(alpha, Linear) else alpha,
        epsilon_mode="everywhere",
        shared_optimiser=True,
    )
