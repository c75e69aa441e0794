"""Which tasks have a picture. A new one is a file with a `Family` in this folder and a line in `FAMILIES`."""

from collections.abc import Mapping
from typing import Any

from macpf.envs.matrix import MatrixGame
from macpf.envs.mpe import FormationControl, LineControl, SimpleSpread
from macpf.envs.multi_goal import MultiGoal
from macpf.envs.smac import SMAC
from macpf.errors import UserError
from macpf.report.replay.data import Family
from macpf.report.replay.game import GAME
from macpf.report.replay.particles import FORMATION, LINE, SPREAD
from macpf.report.replay.point import POINT
from macpf.report.replay.smac import BATTLE
from macpf.types import Environment

FAMILIES: Mapping[type[Any], Family] = {
    MatrixGame: GAME,
    MultiGoal: POINT,
    SimpleSpread: SPREAD,
    FormationControl: FORMATION,
    LineControl: LINE,
    SMAC: BATTLE,
}


def family_of(env: Environment[Any]) -> Family:
    """How an environment is shown; one that has no picture is a user's mistake."""
    if type(env) not in FAMILIES:
        known = ", ".join(kind.__name__ for kind in FAMILIES)
        raise UserError(f"there is no picture of {type(env).__name__}, only of {known}")
    return FAMILIES[type(env)]
