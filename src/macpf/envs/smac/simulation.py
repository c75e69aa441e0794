"""One step of the game: so many frames, each in the same order."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from macpf.backend import kept, settled, unroll
from macpf.envs.smac.battle import Battle, Orders, of_all
from macpf.envs.smac.combat import Aim, aim, fight, recover
from macpf.envs.smac.enemy import call_for_help, choose_targets
from macpf.envs.smac.field import Field
from macpf.envs.smac.healing import Flight, medivacs
from macpf.envs.smac.maps import Hold, Hunt
from macpf.envs.smac.movement import Place, move, steps
from macpf.types import PRNGKey


@partial(jax.jit, static_argnums=(0, 4))  # compiled once also for those who call `step` line by line
def simulate(field: Field, battle: Battle, orders: Orders, key: PRNGKey, frames: int) -> Battle:
    """The battle after some frames under the agents' orders."""
    delay = delays(field, key)

    def after_one(battle: Battle, _: None) -> tuple[Battle, None]:
        return frame(field, battle, orders, delay), None

    battle, _ = jax.lax.scan(after_one, battle, None, length=frames, unroll=unroll(frames))
    foe, alarm = call_for_help(field, battle, frames)
    return eqx.tree_at(lambda b: (b.foe, b.alarm), battle, (foe, alarm))


def delays(field: Field, key: PRNGKey) -> Float[Array, " U"]:
    """Every shot's extra delay, drawn beforehand.

    No weapon fires twice in the eight frames of a step, so one delay for each unit is enough.
    """
    least, most = field.rules.weapon_delay
    luck = jax.random.uniform(key, (len(field.kinds),))
    return least + jnp.floor(luck * (most - least + 1))


def frame(field: Field, battle: Battle, orders: Orders, delay: Float[Array, " U"]) -> Battle:
    """A sixteenth of a second: recover, choose targets, fire, heal, move; all from the same snapshot."""
    n = field.n
    battle = recover(field, battle)
    x, y = battle.x, battle.y
    distance2 = (x[:n, None] - x[None, n:]) ** 2 + (y[:n, None] - y[None, n:]) ** 2
    target = choose_targets(field, battle, distance2)
    battle = eqx.tree_at(lambda b: b.target, battle, target)
    ours, theirs = aim(field, battle, orders.target, ally=True), aim(field, battle, target, ally=False)
    battle = fight(field, battle, distance2, ours, theirs, delay)
    battle = eqx.tree_at(lambda b: b.health, battle, kept(battle.health))
    engaged = of_all(ours.reached, theirs.reached)
    goal, wants = _goals(field, battle, orders, ours, theirs)
    flight = Flight(goal, wants, jnp.asarray(field.speed))
    healed = battle
    if field.heals.any():
        healed, flight = medivacs(field, battle, orders, flight)
    goes = flight.wants & battle.alive & ~engaged
    straight = of_all(orders.moves, jnp.zeros(field.e, bool))
    by, engaged = settled((steps(field, battle, flight.goal, goes, straight, flight.pace), engaged))
    (x, y), turn = move(field, battle, by, engaged)
    after = kept(x), kept(y), turn, kept(healed.health)
    return settled(eqx.tree_at(lambda b: (b.x, b.y, b.turn, b.health), healed, after))


def _goals(
    field: Field, battle: Battle, orders: Orders, ours: Aim, theirs: Aim
) -> tuple[Place, Bool[Array, " U"]]:
    """Where all want to go, and whether they do: to their target, or where their order says."""
    ordered = not isinstance(field.scenario.order, Hold | Hunt)
    goal_x = of_all(
        jnp.where(orders.moves, orders.goal_x, ours.x), jnp.where(theirs.given, theirs.x, battle.aim[0])
    )
    goal_y = of_all(
        jnp.where(orders.moves, orders.goal_y, ours.y), jnp.where(theirs.given, theirs.y, battle.aim[1])
    )
    wants = of_all(orders.moves | ours.given, theirs.given | ordered)
    return (goal_x, goal_y), wants & (field.speed > 0)
