"""Experiments as JSON and back: every dataclass under its name, nothing is executed on reading."""

from dataclasses import fields, is_dataclass
from typing import Any

from macpf.algorithms.central import Central
from macpf.algorithms.fop import FOP
from macpf.algorithms.macpf import MACPF
from macpf.algorithms.mappo import MAPPO
from macpf.algorithms.qtran import QTRAN
from macpf.algorithms.value import ValueDecomposition
from macpf.envs.matrix import MatrixGame
from macpf.envs.mpe import FormationControl, LineControl, SimpleSpread
from macpf.envs.multi_goal import MultiGoal
from macpf.envs.random_game import RandomGame
from macpf.envs.smac import SMAC, Group, Interface, Rules, Scenario
from macpf.envs.smac.maps import AttackBetween, AttackMove, Hold, Hunt
from macpf.errors import UserError
from macpf.experiments.experiment import Experiment
from macpf.networks.mixers import Additive, Advantage, Attention, Duplex, Hyper
from macpf.optim import Adam, RMSprop
from macpf.schedules import Constant, Exponential, Linear

ALGORITHMS = (MACPF, FOP, ValueDecomposition, QTRAN, MAPPO, Central)
PARTS = (Additive, Hyper, Duplex, Attention, Advantage, RMSprop, Adam, Constant, Linear, Exponential)
ENVIRONMENTS = (MatrixGame, MultiGoal, RandomGame, SimpleSpread, FormationControl, LineControl, SMAC)
OF_SMAC = (Rules, Interface, Scenario, Group, AttackMove, AttackBetween, Hunt, Hold)
KNOWN = {cls.__name__: cls for cls in (Experiment, *ENVIRONMENTS, *OF_SMAC, *ALGORITHMS, *PARTS)}


def encode(value: Any) -> Any:
    """A dataclass, tuple or plain value as JSON; a class of the user's own keeps its name and its repr."""
    if is_dataclass(value) and not isinstance(value, type) and type(value).__name__ in KNOWN:
        return {"type": type(value).__name__} | {
            f.name: encode(getattr(value, f.name)) for f in fields(value)
        }
    if isinstance(value, tuple | list):
        return [encode(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return {"type": "own", "name": type(value).__qualname__, "repr": repr(value)}


def decode(data: Any, own: Any = None) -> Any:
    """The value that `encode` wrote; `own` takes the place of what is not of this package."""
    if isinstance(data, list):
        return tuple(decode(v, own) for v in data)
    if not isinstance(data, dict):
        return data
    kind = data.get("type")
    if kind == "own":
        if own is None:
            raise UserError(
                f"this run trained on an environment of your own ({data['name']}): "
                "open it from Python with macpf.load(run, env=...) or macpf.resume(run, env=...)"
            )
        return own
    if kind not in KNOWN:
        raise UserError(f"its configuration names {kind!r}, which this version of macpf does not know")
    try:
        return KNOWN[kind](**{name: decode(v, own) for name, v in data.items() if name != "type"})
    except TypeError as error:
        raise UserError(f"its configuration does not fit this version of macpf ({error})") from error
