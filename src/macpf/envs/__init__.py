"""The tasks by name. A new one is a file in this folder and a line in `TASKS`."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from macpf.envs.matrix import MatrixGame
from macpf.envs.mpe import FormationControl, LineControl, SimpleSpread
from macpf.envs.multi_goal import MultiGoal
from macpf.envs.smac import SCENARIOS, SMAC
from macpf.errors import unknown
from macpf.types import Environment


class Task(NamedTuple):
    """How a task is made, what it is, and a version that changes when its rules do."""

    make: Callable[[], Environment[Any]]
    what: str
    version: int


TASKS: Mapping[str, Task] = {
    "matrix-game": Task(MatrixGame, "one-shot game with two optima and punished miscoordination", 1),
    "multi-goal": Task(MultiGoal, "two agents move a point to one of four goals, if they agree", 2),
    "mpe/simple-spread": Task(SimpleSpread, "agents cover landmarks and keep out of each other's way", 1),
    "mpe/formation-control": Task(FormationControl, "agents stand on a circle at equal angles", 1),
    "mpe/line-control": Task(LineControl, "agents stand on a line at equal distances", 1),
    **{f"smac/{name}": Task(partial(SMAC, name), s.what, 2) for name, s in SCENARIOS.items()},
}


def make(task: str) -> Environment[Any]:
    """The environment of a named task."""
    if task not in TASKS:
        raise unknown("task", task, TASKS)
    return TASKS[task].make()
