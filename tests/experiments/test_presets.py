"""The presets are the paper's numbers."""

from dataclasses import replace

import pytest

import macpf
from macpf.algorithms import ALGORITHMS
from macpf.envs import TASKS
from macpf.errors import UserError
from macpf.experiments.presets import PARTICLE_BEST
from macpf.schedules import Constant, Linear, Schedule


def test_matrix_game_as_in_the_paper() -> None:
    e = macpf.experiment("macpf", "matrix-game", "paper")
    assert e.algorithm.optimiser == macpf.RMSprop(lr=3e-4)
    assert e.algorithm.alpha == macpf.Exponential(1.0, 0.5, 0.999)
    assert (e.batch, e.algorithm.hidden, e.algorithm.recurrent) == (64, 64, False)
    assert e.algorithm.epsilon_mode == "none"


@pytest.mark.parametrize("task", ["mpe/simple-spread", "mpe/formation-control", "mpe/line-control"])
def test_particle_tasks_as_in_the_paper(task: str) -> None:
    for name in ("macpf", "qmix", "qplex", "fop"):
        e = macpf.experiment(name, task, "paper")
        assert (e.batch, e.algorithm.hidden, e.algorithm.recurrent, e.algorithm.optimiser.lr) == (
            64,
            64,
            True,
            5e-4,
        )
    assert macpf.experiment("macpf", task).algorithm.alpha == macpf.Linear(0.5, 0.05, 50_000)
    assert macpf.experiment("macpf", task).algorithm.epsilon_mode == "behaviour"
    assert macpf.experiment("qmix", task).algorithm.epsilon == macpf.Linear(1.0, 0.05, 50_000)
    mappo = macpf.experiment("mappo", task, "paper")
    assert (mappo.parallel, mappo.algorithm.optimiser.lr) == (128, 7e-4)
    assert not mappo.algorithm.own_inputs  # as its authors run it
    assert macpf.experiment("mappo", task).algorithm.own_inputs  # who sees nobody must know who it is
    assert (mappo.algorithm.activation, mappo.algorithm.ppo_epochs) == ("tanh", 10)


@pytest.mark.parametrize("name", ["macpf", "qplex", "mappo", "macpf-att"])
def test_particle_tasks_have_swept_values_by_default(name: str) -> None:
    e = macpf.experiment(name, "mpe/line-control")
    lr, gamma, ahead = PARTICLE_BEST.get(name, PARTICLE_BEST["macpf"])
    assert (e.algorithm.optimiser.lr, e.algorithm.gamma, e.reward_factor) == (lr, gamma, 3.0)
    assert getattr(e.algorithm, "gae_lambda" if name == "mappo" else "td_lambda") == ahead
    assert e.algorithm.optimiser.anneal == (0 if name == "mappo" else 80_000)


def test_values_are_of_one_size_on_all_particle_tasks() -> None:
    factors = {
        task: macpf.experiment("macpf", task).reward_factor for task in TASKS if task.startswith("mpe/")
    }
    assert factors == {"mpe/simple-spread": 0.3, "mpe/formation-control": 3.0, "mpe/line-control": 3.0}


def test_learning_rates_that_have_fallen_to_nothing_are_not_trained_on() -> None:
    e = macpf.experiment("qmix", "mpe/simple-spread")
    with pytest.raises(UserError, match="after 80000 updates, but 4000000 steps make 160000"):
        replace(e, steps=4_000_000)
    assert replace(e, parallel=48).updates == e.updates == 80_000  # whatever plays side by side


def test_paper_and_authors_are_the_two_readings() -> None:
    paper = macpf.experiment("macpf", "multi-goal", "paper").algorithm
    authors = macpf.experiment("macpf", "multi-goal", "authors").algorithm
    readings = {
        "td_lambda": (0.0, 0.8),
        "entropy_reduce": ("sum", "mean"),
        "entropy_terminal": ("bootstrap", "always"),
        "dep_grad_through_trunk": (False, True),
        "critic_dep_scope": ("predecessors", "visible"),
        "dep_mask": ("all", "visible"),
        "epsilon_mode": ("none", "everywhere"),
        "mixer_grad": ("both", "both"),
        "shared_optimiser": (False, True),
        "dep_pool": ("sum/N", "sum/N"),
    }
    assert {n: (getattr(paper, n), getattr(authors, n)) for n in readings} == readings


def test_defaults_of_macpf_are_the_default_column() -> None:
    a = macpf.MACPF()
    assert (a.td_lambda, a.entropy_reduce, a.entropy_terminal) == (0.8, "mean", "bootstrap")
    assert (a.dep_grad_through_trunk, a.critic_dep_scope, a.dep_mask) == (False, "predecessors", "visible")
    assert (a.dep_pool, a.mixer_grad, a.shared_optimiser, a.groups) == ("sum/N", "both", False, None)
    assert (a.optimiser, a.gamma, a.target_period) == (macpf.RMSprop(5e-4), 0.99, 200)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_has_a_preset_on_every_task(algorithm: str, task: str) -> None:
    e = macpf.experiment(algorithm, task)
    assert (e.name, e.task) == (algorithm, task)
    assert e.epochs * e.iterations_per_epoch * e.parallel * e.env.spec.horizon >= e.steps


def test_an_unknown_preset_is_told() -> None:
    with pytest.raises(macpf.UserError, match="did you mean paper"):
        macpf.experiment("macpf", "matrix-game", "pape")


@pytest.mark.parametrize(
    ("task", "alpha"),
    [
        ("smac/8m", Linear(0.5, 0.05, 200_000)),
        ("smac/8m_vs_9m_myopic", Linear(0.5, 0.05, 200_000)),
        ("smac/corridor", Constant(0.001)),
        ("smac/6h_vs_8z", Constant(0.001)),
    ],
)
def test_smac_s_temperature_depends_on_how_hard_the_map_is(task: str, alpha: Schedule):
    made = macpf.experiment("macpf", task)
    assert made.algorithm.alpha == alpha
    assert (made.batch, made.replay, made.burn_in, made.steps) == (32, 5000, 100, 2_000_000)
    assert (
        made.algorithm.epsilon
        == macpf.experiment("qmix", task).algorithm.epsilon
        == Linear(1.0, 0.05, 50_000)
    )
