"""Points that push each other about in a plane: simple spread, formation control and line control."""

from macpf.envs.mpe.formation import FormationControl
from macpf.envs.mpe.line import LineControl
from macpf.envs.mpe.spread import SimpleSpread

__all__ = ["FormationControl", "LineControl", "SimpleSpread"]
