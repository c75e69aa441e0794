"""Which controllers a task has: policies written by hand, by the names that the command line knows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array, Int

from macpf.envs.mpe.controllers import CONTROLLERS
from macpf.envs.mpe.world import ParticleTask
from macpf.envs.smac import SMAC, Battle
from macpf.envs.smac.scripted import Scripted, policies_for
from macpf.types import Controller, Environment, PRNGKey


@dataclass(frozen=True)
class Script:
    """A scripted policy of SMAC; it decides anew at every step."""

    policy: Scripted

    def plan(self, env: SMAC, battle: Battle) -> tuple[()]:
        return ()

    def act(self, env: SMAC, battle: Battle, plan: tuple[()], key: PRNGKey) -> Int[Array, " N"]:
        return self.policy(env, battle, key)


def controllers_of(env: Environment[Any]) -> Mapping[str, Controller]:
    """The controllers of a task; most tasks have none."""
    if isinstance(env, ParticleTask):
        return CONTROLLERS
    if isinstance(env, SMAC):
        return {name.replace(" ", "-"): Script(policy) for name, policy in policies_for(env).items()}
    return {}
