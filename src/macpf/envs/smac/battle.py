"""The state of a battle, and the orders of a step."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped


class Battle(eqx.Module):
    """Everything that changes; vectors are over all units, agents first, or over the opponents (E).

    Fields:
        x, y: positions, east and north; the dead lie where they fell.
        health, shield: 0 health is dead.
        cooldown: frames to the next shot; up to a frame below 0 for one ready in mid-frame.
        unhurt: frames until shields regenerate.
        energy, pace: of a medivac, and how far it flies in a frame by now.
        loaded: a baneling that has not exploded.
        turn: the side on which a unit goes round those in its way: 1 left, -1 right, 0 none so far.
        target: whom an opponent attacks (its medivac: which of its own it heals), -1 for nobody.
        foe, alarm: by whom it was hit last, and for how many frames it will remember.
        aim: the point of the opponents' order.
        actions: the agents' latest actions, -1 before the first.
        time: steps so far.
    """

    x: Float[Array, " U"]
    y: Float[Array, " U"]
    health: Float[Array, " U"]
    shield: Float[Array, " U"]
    cooldown: Float[Array, " U"]
    unhurt: Float[Array, " U"]
    energy: Float[Array, " U"]
    pace: Float[Array, " U"]
    loaded: Bool[Array, " U"]
    turn: Float[Array, " U"]
    target: Int[Array, " E"]
    foe: Int[Array, " E"]
    alarm: Int[Array, " E"]
    aim: Float[Array, " 2"]
    actions: Int[Array, " N"]
    time: Int[Array, ""]

    @property
    def alive(self) -> Bool[Array, " U"]:
        return self.health > 0


class Orders(eqx.Module):
    """What the agents were told at the start of the step: at most one of the three.

    `target`: the opponent to go for, below 0 if none. `heal`: the teammate that a medivac heals, likewise.
    `moves`: walk to the goal.
    """

    target: Int[Array, " N"]
    heal: Int[Array, " N"]
    moves: Bool[Array, " N"]
    goal_x: Float[Array, " N"]
    goal_y: Float[Array, " N"]


def of_all(agents: Shaped[Array, " N"], opponents: Shaped[Array, " E"]) -> Shaped[Array, " U"]:
    """The values of all units, agents first.

    By a choice between the two, padded: compilers fuse that with what comes before and after it, and
    concatenations with neither.
    """
    n, e = len(agents), len(opponents)
    nothing = jnp.zeros((), agents.dtype)
    ours, theirs = (
        jax.lax.pad(v, nothing, [(before, after, 0)])
        for v, before, after in ((agents, 0, e), (opponents, n, 0))
    )
    return jnp.where(np.arange(n + e) < n, ours, theirs)
