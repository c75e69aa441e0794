"""All figures of one run."""

from pathlib import Path

from macpf.report import curves, joint
from macpf.runs.run import Run


def draw_all(run: Run) -> list[Path]:
    """Writes the figures that this run has, and says where."""
    folder = run.directory.figures
    folder.mkdir(exist_ok=True)
    drawn = [folder / "learning_curves.png"]
    curves.draw(run, drawn[0])
    if joint.has_picture(run):
        drawn.append(folder / "joint_policies.png")
        joint.draw(run, drawn[-1])
    return drawn
