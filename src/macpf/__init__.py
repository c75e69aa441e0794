"""Cooperative multi-agent reinforcement learning in JAX: MACPF and its tasks, each experiment one program."""

from macpf.algorithms.macpf import MACPF
from macpf.envs import make
from macpf.envs.check import check_env
from macpf.envs.matrix import MatrixGame
from macpf.envs.mpe import FormationControl, LineControl, SimpleSpread
from macpf.envs.multi_goal import MultiGoal
from macpf.errors import UserError
from macpf.experiments.experiment import Experiment
from macpf.experiments.presets import experiment
from macpf.optim import Adam, RMSprop
from macpf.runs.run import Run, load, resume, train
from macpf.schedules import Constant, Exponential, Linear
from macpf.types import Algorithm, Environment, EnvSpec, Observation, TimeStep, Trajectory
from macpf.version import __version__

__all__ = [
    "MACPF",
    "Adam",
    "Algorithm",
    "Constant",
    "EnvSpec",
    "Environment",
    "Experiment",
    "Exponential",
    "FormationControl",
    "LineControl",
    "Linear",
    "MatrixGame",
    "MultiGoal",
    "Observation",
    "RMSprop",
    "Run",
    "SimpleSpread",
    "TimeStep",
    "Trajectory",
    "UserError",
    "__version__",
    "check_env",
    "experiment",
    "load",
    "make",
    "resume",
    "train",
]
