"""The algorithms by name. A new one is a file in this folder and a line in `ALGORITHMS`."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from macpf.algorithms.central import Central
from macpf.algorithms.fop import FOP
from macpf.algorithms.macpf import MACPF
from macpf.algorithms.mappo import MAPPO
from macpf.algorithms.qtran import QTRAN
from macpf.algorithms.value import ValueDecomposition
from macpf.networks.mixers import Additive, Advantage, Attention, Duplex, Hyper
from macpf.types import Algorithm


class Entry(NamedTuple):
    """How an algorithm is made with its own defaults, what it is, and the paper it comes from."""

    make: Callable[[], Algorithm[Any]]
    what: str
    paper: str


def macpf_plus() -> MACPF:
    """MACPF with the critic of the paper's own decomposition, and policies committed to one joint choice."""
    return MACPF(
        mixer=Advantage(),
        extraction="committed",
        targets="value",
        improvement="imitation",
        deep=True,
        entropy_reduce="sum",
    )


MACPF_PAPER = "Wang, Ye, Lu, ICLR 2023"

ALGORITHMS: Mapping[str, Entry] = {
    "macpf": Entry(MACPF, "dependent policies learn, independent ones execute", MACPF_PAPER),
    "macpf-plus": Entry(
        macpf_plus, "MACPF with an identified critic and committed independent policies", "this library"
    ),
    "macpf-control": Entry(
        lambda: MACPF(dependent=False), "MACPF without the dependent policies", MACPF_PAPER
    ),
    "macpf-nonlinear": Entry(
        lambda: MACPF(mixer=Hyper(embed=64, hidden=64, form="elu")), "MACPF with QMIX's mixer", MACPF_PAPER
    ),
    "macpf-att": Entry(lambda: MACPF(mixer=Attention()), "MACPF with FOP's attention mixer", MACPF_PAPER),
    "fop": Entry(
        FOP, "factorised soft policies under twin attention-mixed critics", "Zhang et al., ICML 2021"
    ),
    "vdn": Entry(
        lambda: ValueDecomposition(mixer=Additive()),
        "Q-learning on the sum of the agents' values",
        "Sunehag et al., AAMAS 2018",
    ),
    "qmix": Entry(
        ValueDecomposition,
        "Q-learning on a monotonic mixture of the agents' values",
        "Rashid et al., ICML 2018",
    ),
    "qplex": Entry(
        lambda: ValueDecomposition(mixer=Duplex()),
        "Q-learning on duplex dueling values: any task where each agent's best is the team's",
        "Wang et al., ICLR 2021",
    ),
    "qtran": Entry(
        QTRAN, "an unrestricted joint critic, and a sum made to agree with it", "Son et al., ICML 2019"
    ),
    "mappo": Entry(MAPPO, "PPO with a critic that sees the state", "Yu et al., NeurIPS 2022"),
    "central": Entry(
        Central, "soft Q-learning over joint actions, not decentralised", "Haarnoja et al., ICML 2017"
    ),
}
