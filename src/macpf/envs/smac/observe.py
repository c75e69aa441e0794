"""What agents can do and see, in SMAC's own words: masks, observations, state, visibility."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from macpf.envs.smac.battle import Battle
from macpf.envs.smac.combat import ENERGY_MOST
from macpf.envs.smac.field import Field
from macpf.envs.smac.rules import Interface
from macpf.envs.smac.terrain import SIZE, is_open, is_open_ground

NO_OP, STOP, NORTH, SOUTH, EAST, WEST = range(6)
FIRST_TARGET = 6  # action 6 + k: attack opponent k; of a medivac: heal teammate k
DIRECTIONS = np.asarray([[0.0, 1.0], [0.0, -1.0], [1.0, 0.0], [-1.0, 0.0]], np.float32)  # north first


class Sizes:
    """How long each part of an observation and of the state is."""

    def __init__(self, field: Field, interface: Interface) -> None:
        n, e, scenario = field.n, field.e, field.scenario
        kinds = len(scenario.kinds)
        ally_shield, enemy_shield = (int(part.any()) for part in (field.shield[:n], field.shield[n:]))
        self.actions = FIRST_TARGET + e
        self.own = 1 + ally_shield + kinds
        self.ally = 5 + ally_shield + kinds + self.actions * interface.obs_last_action
        self.enemy = 5 + enemy_shield + kinds
        self.has_allies = scenario.allies_seen or interface.hidden_allies == "zero"
        self.obs = 4 + e * self.enemy + (n - 1) * self.ally * self.has_allies + self.own
        self.obs += interface.obs_timestep_number
        self.ally_state, self.enemy_state = 4 + ally_shield + kinds, 3 + enemy_shield + kinds
        self.state = (
            n * self.ally_state + e * self.enemy_state + n * self.actions * interface.state_last_action
        )
        self.state += interface.state_timestep_number


class Sight:
    """Who is how far from whom, seen from the agents; `near2` and `far2` are squared distances."""

    def __init__(self, field: Field, battle: Battle) -> None:
        n, x, y = field.n, battle.x, battle.y
        self.dx, self.dy = x[None] - x[:n, None], y[None] - y[:n, None]
        self.away2 = self.dx**2 + self.dy**2
        both = battle.alive[:n, None] & battle.alive[None]
        others = ~np.eye(n, len(field.kinds), dtype=bool)
        self.sees = both & (self.away2 < field.scenario.sight**2) & others
        self.both = both


def available(field: Field, interface: Interface, battle: Battle) -> Bool[Array, "N A"]:
    """SMAC's mask of legal actions: the dead do nothing, and only they."""
    n, alive = field.n, battle.alive
    living = alive[:n, None]
    sight = Sight(field, battle)
    in_range = sight.both & (sight.away2 <= interface.shoot_range**2)
    targets = in_range[:, n:]
    medivac = field.medivac(ally=True)
    if medivac is not None:
        patients = in_range[medivac, :n] & ~field.heals[:n]
        patients = jnp.concatenate([patients, jnp.zeros(max(field.e - n, 0), bool)])[: field.e]
        targets = jnp.where((np.arange(n) == medivac)[:, None], patients[None], targets)
    can_move = living & _open_ahead(field, interface, battle)
    return jnp.concatenate([~living, living, can_move, targets], axis=1)


def _open_ahead(field: Field, interface: Interface, battle: Battle) -> Bool[Array, "N 4"]:
    """Is the cell half a move away open, for each direction? SMAC asks the walkers' grid for all units."""
    n, ahead = field.n, interface.move_amount / 2
    x = battle.x[:n, None] + ahead * DIRECTIONS[None, :, 0]
    y = battle.y[:n, None] + ahead * DIRECTIONS[None, :, 1]
    opened = is_open_ground(field.land, x, y)
    if interface.colossus_mask == "cliff_ok" and field.strides[:n].any():
        opened = jnp.where(field.strides[:n, None], is_open(field.land.cliff, x, y), opened)
    return opened


def one_hot_kinds(field: Field, interface: Interface) -> Float[np.ndarray, "U B"]:
    """The type features of all units; opponents by their own order, as SMAC has it."""
    scenario = field.scenario
    theirs = scenario.kinds if interface.align_types else scenario.enemy_kinds
    orders = [scenario.kinds] * field.n + [theirs] * field.e
    rows = np.zeros((len(field.kinds), len(scenario.kinds)), np.float32)
    for row, unit, order in zip(rows, field.kinds, orders, strict=True):
        if unit.name in order:
            row[order.index(unit.name)] = 1
    return rows


def _vitals(field: Field, interface: Interface, battle: Battle, who: slice) -> Float[Array, "W F"]:
    """Share of health, share of shield in a team that has shields, type: of the units of one team."""
    kinds = one_hot_kinds(field, interface)[who]
    parts = [(battle.health[who] / field.health[who])[:, None]]
    if field.shield[who].any():
        parts.append((battle.shield[who] / np.maximum(field.shield[who], 1))[:, None])
    return jnp.concatenate([*parts, jnp.asarray(kinds)], axis=1)


def observations(
    field: Field, interface: Interface, battle: Battle, avail: Bool[Array, "N A"]
) -> Float[Array, "N O"]:
    """What each agent observes: where it can go, the opponents, the teammates, itself; all zero when dead."""
    n, e, alive = field.n, field.e, battle.alive
    sight = Sight(field, battle)
    distance = jnp.sqrt(sight.away2)
    place = jnp.stack([distance, sight.dx, sight.dy], axis=-1) / field.scenario.sight
    attackable = avail[:, FIRST_TARGET:, None].astype(jnp.float32)
    enemies = jnp.concatenate(
        [attackable, place[:, n:], _seen(field, interface, battle, slice(n, n + e))], -1
    )
    enemies = jnp.where(sight.sees[:, n:, None], enemies, 0.0)
    parts = [avail[:, NORTH:FIRST_TARGET].astype(jnp.float32), enemies.reshape(n, -1)]
    if field.scenario.allies_seen:
        parts.append(_allies(field, interface, battle, sight, place))
    elif interface.hidden_allies == "zero":
        parts.append(jnp.zeros((n, (n - 1) * Sizes(field, interface).ally)))
    parts.append(_vitals(field, interface, battle, slice(0, n)))
    if interface.obs_timestep_number:
        parts.append(jnp.full((n, 1), battle.time / field.scenario.limit))
    return jnp.where(alive[:n, None], jnp.concatenate(parts, axis=1), 0.0)


def _seen(field: Field, interface: Interface, battle: Battle, who: slice) -> Float[Array, "N W F"]:
    """The vitals of a team, once for each agent who looks."""
    vitals = _vitals(field, interface, battle, who)
    return jnp.broadcast_to(vitals[None], (field.n, *vitals.shape))


def _allies(
    field: Field, interface: Interface, battle: Battle, sight: Sight, place: Float[Array, "N U 3"]
) -> Float[Array, "N L"]:
    """The rows of the teammates, each agent's own left out."""
    n = field.n
    parts = [jnp.ones((n, n, 1)), place[:, :n], _seen(field, interface, battle, slice(0, n))]
    if interface.obs_last_action:
        parts.append(jnp.broadcast_to(last_actions(field, battle)[None], (n, n, FIRST_TARGET + field.e)))
    rows = jnp.where(sight.sees[:, :n, None], jnp.concatenate(parts, axis=-1), 0.0)
    return without_diagonal(rows).reshape(n, -1)


def without_diagonal(rows: Float[Array, "N N F"]) -> Float[Array, "N M F"]:
    """Row i without its entry i; by reshaping, for a gather is slow."""
    n, _, f = rows.shape
    return rows.reshape(n * n, f)[1:].reshape(n - 1, n + 1, f)[:, :-1].reshape(n, n - 1, f)


def last_actions(field: Field, battle: Battle) -> Float[Array, "N A"]:
    """The latest actions as one-hot rows; zeros before the first."""
    actions = jnp.arange(FIRST_TARGET + field.e, dtype=jnp.int32)
    return (battle.actions[:, None] == actions[None]).astype(jnp.float32)


def state(field: Field, interface: Interface, battle: Battle) -> Float[Array, " S"]:
    """The state: rows of the agents, rows of the opponents, the latest actions; rows of the dead are zero."""
    n, alive = field.n, battle.alive
    normal = np.asarray([unit.normal_cooldown for unit in field.kinds], np.float32)
    ready = jnp.maximum(battle.cooldown, 0.0) / normal
    if field.heals.any():
        ready = jnp.where(field.heals, battle.energy / ENERGY_MOST, ready)
    x, y = ((v - SIZE / 2) / interface.max_distance for v in (battle.x, battle.y))
    ours, theirs = (_vitals(field, interface, battle, who) for who in (slice(0, n), slice(n, None)))
    place = jnp.stack([x, y], axis=1)
    allies = jnp.concatenate([ours[:, :1], ready[:n, None], place[:n], ours[:, 1:]], axis=1)
    enemies = jnp.concatenate([theirs[:, :1], place[n:], theirs[:, 1:]], axis=1)
    parts = [
        jnp.where(alive[:n, None], allies, 0.0).reshape(-1),
        jnp.where(alive[n:, None], enemies, 0.0).reshape(-1),
    ]
    if interface.state_last_action:
        parts.append(last_actions(field, battle).reshape(-1))
    if interface.state_timestep_number:
        parts.append((battle.time / field.scenario.limit)[None])
    return jnp.concatenate(parts)


def visibility(field: Field, battle: Battle) -> Bool[Array, "N U"]:
    """SMAC's matrix: whom each agent sees, teammates first; nobody sees itself, and the dead see nobody."""
    return Sight(field, battle).sees
