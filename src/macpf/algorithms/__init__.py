"""The algorithms by name. A new one is a file in this folder and a line in `ALGORITHMS`."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from macpf.algorithms.macpf import MACPF
from macpf.types import Algorithm


class Entry(NamedTuple):
    """How an algorithm is made with its own defaults, what it is, and the paper it comes from."""

    make: Callable[[], Algorithm[Any]]
    what: str
    paper: str


ALGORITHMS: Mapping[str, Entry] = {
    "macpf": Entry(MACPF, "dependent policies learn, independent ones execute", "Wang, Ye, Lu, ICLR 2023"),
}
