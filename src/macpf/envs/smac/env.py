"""The environment: reset and step, the reward, and how an episode ends."""

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from macpf import backend
from macpf.envs.smac import observe
from macpf.envs.smac.battle import Battle, Orders
from macpf.envs.smac.combat import ENERGY_START
from macpf.envs.smac.enemy import NOBODY
from macpf.envs.smac.field import Field, check, field_of
from macpf.envs.smac.maps import SCENARIOS, AttackBetween, AttackMove, Scenario
from macpf.envs.smac.movement import on_ground
from macpf.envs.smac.observe import DIRECTIONS, EAST, FIRST_TARGET, NO_OP, NORTH, SOUTH, STOP, WEST, Sizes
from macpf.envs.smac.rules import Interface, Rules
from macpf.envs.smac.simulation import simulate
from macpf.errors import unknown
from macpf.types import EnvSpec, Observation, PRNGKey, TimeStep


class Outcome(NamedTuple):
    """How a battle stands: at most one of the three."""

    won: Bool[Array, ""]
    lost: Bool[Array, ""]
    draw: Bool[Array, ""]


class Info(NamedTuple):
    """What SMAC tells beside the reward."""

    battle_won: Bool[Array, ""]
    dead_allies: Int[Array, ""]
    dead_enemies: Int[Array, ""]
    timeout: Bool[Array, ""]


@dataclass(frozen=True)
class SMAC:
    """A scenario of SMAC, by name or your own, in a simulation of StarCraft II's combat."""

    map: str | Scenario = "8m"
    rules: Rules = dataclasses.field(default_factory=Rules)
    interface: Interface = dataclasses.field(default_factory=Interface)

    def __post_init__(self) -> None:
        if isinstance(self.map, str) and self.map not in SCENARIOS:
            raise unknown("map", self.map, SCENARIOS)
        check(self.scenario)

    @property
    def scenario(self) -> Scenario:
        return SCENARIOS[self.map] if isinstance(self.map, str) else self.map

    @property
    def field(self) -> Field:
        """The scenario as arrays."""
        return field_of(self.scenario, self.rules)

    @property
    def spec(self) -> EnvSpec:
        sizes = Sizes(self.field, self.interface)
        limit = self.scenario.limit
        return EnvSpec(self.field.n, sizes.actions, sizes.obs, sizes.state, limit, sizes.ally_state)

    def reset(self, key: PRNGKey) -> tuple[Battle, TimeStep]:
        place_key, aim_key, key = jax.random.split(key, 3)
        battle = begin(self.field, place_key, aim_key)
        if self.rules.first_frames:
            # A compiler that knew what all do would play the frame itself, for every copy; a CPU's makes a
            # slower program of whatever else it knows here.
            hide = jax.lax.optimization_barrier
            nothing = dataclasses.replace(battle, actions=hide(battle.actions))
            battle = hide(battle) if backend.on_cpu() else nothing
            waiting = orders_of(self.field, self.interface, battle, battle.actions)
            battle = simulate(self.field, battle, waiting, key, self.rules.first_frames)
        return battle, self._arrive(battle, jnp.zeros(()))

    def step(self, state: Battle, actions: Int[Array, " N"], key: PRNGKey) -> tuple[Battle, TimeStep]:
        done = self.legal(state, actions)
        orders = orders_of(self.field, self.interface, state, done)
        battle = simulate(self.field, state, orders, key, self.interface.step_mul)
        battle = eqx.tree_at(lambda b: (b.actions, b.time), battle, (done, state.time + 1))
        return battle, self._arrive(battle, reward(self.field, self.interface, state, battle))

    def legal(self, state: Battle, actions: Int[Array, " N"]) -> Int[Array, " N"]:
        """The actions, or to stop in place of one that is not available (nothing, for the dead)."""
        avail = observe.available(self.field, self.interface, state)
        chosen = actions[:, None] == jnp.arange(avail.shape[1], dtype=actions.dtype)[None]
        otherwise = jnp.where(state.alive[: self.field.n], STOP, NO_OP)
        return jnp.where(jnp.any(chosen & avail, axis=1), actions, otherwise).astype(jnp.int32)

    def info(self, state: Battle) -> Info:
        """What SMAC calls info, of a battle."""
        dead, n, how = ~state.alive, self.field.n, outcome(self.field, state)
        over = state.time >= self.scenario.limit
        return Info(how.won, jnp.sum(dead[:n]), jnp.sum(dead[n:]), over & ~(how.won | how.lost | how.draw))

    def visibility(self, state: Battle) -> Bool[Array, "N U"]:
        """SMAC's visibility matrix: whom each agent sees, teammates first, then opponents."""
        return observe.visibility(self.field, state)

    def _arrive(self, battle: Battle, reward: Float[Array, ""]) -> TimeStep:
        avail = observe.available(self.field, self.interface, battle)
        how = outcome(self.field, battle)
        decided = how.won | how.lost | how.draw
        late = (battle.time >= self.scenario.limit) & ~decided
        seen = Observation(
            observe.observations(self.field, self.interface, battle, avail),
            observe.state(self.field, self.interface, battle),
            avail,
            self.visibility(battle)[:, : self.field.n],
        )
        # To SMAC's learners a timeout is an end like any other, unless continuing_episode says otherwise.
        terminated = decided if self.interface.continuing_episode else decided | late
        return TimeStep(seen, reward, terminated, truncated=late, won=how.won)


def begin(field: Field, place_key: PRNGKey, aim_key: PRNGKey) -> Battle:
    """Everybody at the start, in full health."""
    n, e, u = field.n, field.e, len(field.kinds)
    x, y = _places(field, place_key)
    order = field.scenario.order
    aim = jnp.zeros(2)
    if isinstance(order, AttackMove):
        aim = jnp.asarray(order.to)
    if isinstance(order, AttackBetween):
        one, other = jnp.asarray(order.one), jnp.asarray(order.other)
        aim = one + jax.random.uniform(aim_key) * (other - one)
    return Battle(
        x=x,
        y=y,
        health=jnp.asarray(field.health),
        shield=jnp.asarray(field.shield),
        cooldown=jnp.zeros(u),
        unhurt=jnp.zeros(u),
        energy=jnp.asarray(ENERGY_START * field.heals.astype(np.float32)),
        pace=jnp.zeros(u),
        loaded=jnp.asarray([unit.explodes for unit in field.kinds]),
        turn=jnp.zeros(u),
        target=jnp.full(e, -1, jnp.int32),
        foe=jnp.full(e, -1, jnp.int32),
        alarm=jnp.zeros(e, jnp.int32),
        aim=aim,
        actions=jnp.full(n, -1, jnp.int32),
        time=jnp.zeros((), jnp.int32),
    )


def _places(field: Field, key: PRNGKey) -> tuple[Float[Array, " U"], Float[Array, " U"]]:
    """The places at the start; agents are numbered by them, also where chance has a part in it."""
    x, y = jnp.asarray(field.start)
    jitter = field.rules.spawn_jitter
    if jitter == 0:
        return x, y
    by_x, by_y = jax.random.uniform(key, field.start.shape, minval=-jitter, maxval=jitter)
    by_x, by_y = (jnp.where(field.speed > 0, by, 0.0) for by in (by_x, by_y))
    x, y = on_ground(field, (x, y), (x + by_x, y + by_y))
    n = field.n
    kind = jnp.asarray([field.kinds.index(unit) for unit in field.kinds[:n]])
    order = jnp.lexsort((y[:n], x[:n], kind))
    return jnp.concatenate([x[:n][order], x[n:]]), jnp.concatenate([y[:n][order], y[n:]])


def orders_of(field: Field, interface: Interface, battle: Battle, actions: Int[Array, " N"]) -> Orders:
    """What legal actions mean; anything else (-1) is to stop."""
    n = field.n
    moves = (actions >= NORTH) & (actions < FIRST_TARGET)
    way = (actions[:, None] == jnp.asarray([NORTH, SOUTH, EAST, WEST], jnp.int32)[None]).astype(jnp.float32)
    goal = interface.move_amount * jnp.sum(way[:, :, None] * DIRECTIONS[None], axis=1)
    which, healer = actions - FIRST_TARGET, jnp.asarray(field.heals[:n])
    return Orders(
        target=jnp.where(healer, NOBODY, which),
        heal=jnp.where(healer, which, NOBODY),
        moves=moves,
        goal_x=battle.x[:n] + goal[:, 0],
        goal_y=battle.y[:n] + goal[:, 1],
    )


def outcome(field: Field, battle: Battle) -> Outcome:
    """SMAC's rules of the end; where there are medivacs, a team of which only they are left has lost."""
    n = field.n
    ours, theirs = battle.alive[:n], battle.alive[n:]
    we_stand, they_stand = jnp.any(ours), jnp.any(theirs)
    lost, won = ~we_stand & they_stand, we_stand & ~they_stand
    if field.heals.any():
        lost = lost | ~jnp.any(ours & ~field.heals[:n])
        won = ~lost & (won | ~jnp.any(theirs & ~field.heals[n:]))
    return Outcome(won, lost, ~(we_stand | they_stand) & ~lost)


def most_reward(field: Field, interface: Interface) -> float:
    """What SMAC calls max_reward: all opponents' health and shields, their deaths, and the victory."""
    vitals = float(np.sum(field.health[field.n :] + field.shield[field.n :]))
    return interface.reward_death_value * field.e + interface.reward_win + vitals


def reward(field: Field, interface: Interface, before: Battle, after: Battle) -> Float[Array, ""]:
    """SMAC's reward of a step: damage done, deaths, victory, scaled so that a clean win returns 20."""
    n, how = field.n, outcome(field, after)
    lost = (before.health + before.shield) - jnp.where(after.alive, after.health + after.shield, 0.0)
    deaths = jnp.where(before.alive & ~after.alive, interface.reward_death_value, 0.0)
    gained = jnp.sum(lost[n:]) + jnp.sum(deaths[n:])
    if interface.reward_only_positive:
        total = jnp.abs(gained) if interface.reward_clip == "abs" else jnp.maximum(gained, 0.0)
    else:
        total = gained - interface.reward_negative_scale * (jnp.sum(lost[:n]) + jnp.sum(deaths[:n]))
    if interface.reward_sparse:
        total = jnp.where(how.won, 1.0, jnp.where(how.lost, -1.0, 0.0))
    else:
        total = total + jnp.where(how.won, interface.reward_win, 0.0)
        total = total + jnp.where(how.lost, interface.reward_defeat, 0.0)
    if interface.reward_scale:
        total = total * (interface.reward_scale_rate / most_reward(field, interface))
    return total
