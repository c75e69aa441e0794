"""SMAC's scenarios without StarCraft: its interface over a simulation of the game's combat."""

from macpf.envs.smac.battle import Battle, Orders
from macpf.envs.smac.env import SMAC, Info
from macpf.envs.smac.maps import SCENARIOS, Group, Scenario
from macpf.envs.smac.rules import Interface, Rules
from macpf.envs.smac.units import LIBERTY, LOTV, Unit

__all__ = [
    "LIBERTY",
    "LOTV",
    "SCENARIOS",
    "SMAC",
    "Battle",
    "Group",
    "Info",
    "Interface",
    "Orders",
    "Rules",
    "Scenario",
    "Unit",
]
