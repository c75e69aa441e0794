"""What the simulator assumes and what SMAC's interface offers, as named fields with their defaults."""

from dataclasses import dataclass
from typing import Literal

from macpf.envs.smac.units import Balance
from macpf.errors import require


@dataclass(frozen=True)
class Rules:
    """How the simulated game goes where StarCraft's own way is unknown or simplified.

    Fields:
        balance: the table of units; SMAC's maps use that of the Liberty mod.
        first_frames: frames that pass between the start and the first observation.
        weapon_delay: a shot's random extra delay in frames, from the first to the second, uniform.
        minimum_scan: opponents notice what is this near (or in the range of their weapon, if longer).
        memory_frames: so long an opponent remembers who hit it, or a friend within `help_radius`.
        leash: and goes for that one while it is this near.
        healer_priority: are healers ordinary targets, or shot at first ("top")?
        enemy_medivac: it follows its team, or stays until somebody wounded is near ("idle").
        sweeps: how often in a frame those who would run into each other give way.
        yielding: the share of it that one sweep removes.
        contact: no two units come to overlap by more than this.
        spawn_gap: space between neighbours at the start.
        spawn_jitter: every unit starts up to so far from its place, along each axis.
    """

    balance: Balance = "liberty"
    first_frames: int = 1
    weapon_delay: tuple[int, int] = (-1, 2)
    minimum_scan: float = 5.0
    memory_frames: int = 32
    help_radius: float = 4.0
    leash: float = 12.0
    healer_priority: Literal["equal", "top"] = "equal"
    enemy_medivac: Literal["follow", "idle"] = "follow"
    sweeps: int = 2
    yielding: float = 1.0
    contact: float = 0.05
    spawn_gap: float = 0.05
    spawn_jitter: float = 0.0

    def __post_init__(self) -> None:
        least, most = self.weapon_delay
        require(least <= most, "weapon_delay is (least, most), and least must not exceed most")
        require(least >= -8, "a weapon that is hurried by more than 8 frames could fire twice in a step")
        require(self.first_frames >= 0, "first_frames must not be negative")
        require(self.sweeps >= 1, "sweeps must be positive")
        require(0 < self.yielding <= 1, "yielding is a share: more than 0, at most 1")
        require(self.spawn_jitter >= 0, "spawn_jitter must not be negative")


@dataclass(frozen=True)
class Interface:
    """SMAC's options under SMAC's names and with its defaults, and a few beside them.

    Fields that SMAC does not have:
        max_distance: what positions in the state are divided by; 28 if the playable area counts.
        align_types: one type index for both teams; SMAC numbers stalkers and zealots of theirs the other way.
        reward_clip: SMAC pays the absolute value, so that shields which regenerate pay; "max0" does not.
        colossus_mask: SMAC asks the walkers' grid about colossi too; "cliff_ok" asks where they can stand.
        hidden_allies: where a map hides teammates, leave their features out or set them to zero.
    """

    step_mul: int = 8
    move_amount: float = 2.0
    shoot_range: float = 6.0
    continuing_episode: bool = False
    obs_last_action: bool = False
    state_last_action: bool = True
    obs_timestep_number: bool = False
    state_timestep_number: bool = False
    reward_sparse: bool = False
    reward_only_positive: bool = True
    reward_death_value: float = 10.0
    reward_win: float = 200.0
    reward_defeat: float = 0.0
    reward_negative_scale: float = 0.5
    reward_scale: bool = True
    reward_scale_rate: float = 20.0
    max_distance: float = 32.0
    align_types: bool = False
    reward_clip: Literal["abs", "max0"] = "abs"
    colossus_mask: Literal["ground", "cliff_ok"] = "ground"
    hidden_allies: Literal["drop", "zero"] = "drop"

    def __post_init__(self) -> None:
        require(self.step_mul > 0, f"a step lasts at least one frame, not {self.step_mul}")
        require(self.move_amount > 0, "move_amount must be positive")
        require(self.max_distance > 0, "max_distance must be positive")
