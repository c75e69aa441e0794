"""The command line: what it prints, and what it says about mistakes."""

import json
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import macpf
from macpf.algorithms import ALGORITHMS
from macpf.cli import main
from macpf.envs import TASKS
from macpf.experiments.experiment import OFF_POLICY
from tests.tiny import FLAGS, tiny_run


def said(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """The one sentence on stderr of a command that must end with exit code 2."""
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("macpf: ")
    assert len(err.splitlines()) == 1
    return err


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """What a command prints that must go well."""
    assert main(args) == 0
    return capsys.readouterr().out


def test_list_names_everything_with_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "list")
    assert "macpf " in out
    assert "ICLR 2023" in out
    assert "matrix-game" in out
    assert "2 agents, 4 actions, observation 2, state 2, 20 steps" in out


def test_list_names_every_algorithm_with_its_paper(capsys: pytest.CaptureFixture[str]) -> None:
    lines = {line.split()[0]: line for line in printed(capsys, "list").splitlines() if line.startswith("  ")}
    assert lines.keys() == ALGORITHMS.keys() | TASKS.keys()
    for name, entry in ALGORITHMS.items():
        assert entry.what in lines[name]
        assert lines[name].endswith(f"({entry.paper})")


def test_help_tells_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys)
    for command in ("list", "train", "resume", "evaluate", "bench"):
        assert f"  {command}" in out


@pytest.mark.parametrize(("task", "value"), [("matrix-game", "0.0003"), ("multi-goal", "0.004")])
def test_help_of_train_shows_the_presets_values(
    task: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "macpf", task, "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert f"(default: {value})" in out.split("--optimiser.lr")[1][:80]


def test_presets_change_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    for preset, reduce in (("paper", "sum"), ("authors", "mean")):
        with pytest.raises(SystemExit):
            main(["train", "macpf", "matrix-game", "--preset", preset, "--help"])
        after = capsys.readouterr().out.split("--entropy-reduce")[1].split("--entropy-terminal")[0]
        assert f"(default: {reduce})" in " ".join(after.replace("│", "").split())


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["trian"], "did you mean train?"),
        (["train", "macfp", "matrix-game"], "unknown algorithm 'macfp': did you mean macpf"),
        (["train", "macpf", "matrix-gam"], "unknown task 'matrix-gam': did you mean matrix-game"),
        (["train", "macpf"], "train needs an algorithm and a task"),
        (["train", "macpf", "matrix-game", "--bach", "3"], "did you mean --batch?"),
        (["train", "macpf", "matrix-game", "--batch", "many"], "--batch"),
        (
            ["train", "macpf", "matrix-game", "--optimiser.lr", "-1"],
            "learning rate must be positive, not -1.0",
        ),
        (["train", "macpf", "matrix-game", "--batch", "64", "--replay", "32"], "does not fit a replay of 32"),
        (["train", "macpf", "matrix-game", "--seeds", "0"], "number of seeds must be positive, not 0"),
        (["train", "macpf", "matrix-game", "--steps", "0"], "steps must be positive, not 0"),
        (["train", "macpf", "matrix-game", "--gamma", "2"], "gamma must be in [0, 1], not 2.0"),
        (["train", "macpf", "matrix-game", "--epsilon-mode", "nome"], "'none', 'behaviour', 'everywhere'"),
        (["train", "macpf", "matrix-game", "--preset", "papr"], "did you mean paper?"),
        (["train", "macpf", "matrix-game", "--alpha.rate", "1.5"], "rate must be in (0, 1]"),
        (["train", "macpf", "matrix-game", "--replay", "1000000000000"], "GiB"),
        (["resume", "nowhere"], "there is no run directory nowhere"),
        (["evaluate", "nowhere"], "there is no run directory nowhere"),
        (["evaluate", "mpe/simple-spread"], "is a task, not a run directory: train on it, or name a --contr"),
        (["evaluate", "mpe/simple-spread", "--controller", "look"], "did you mean look-ahead?"),
        (["evaluate", "mpe/line", "--controller", "stay"], "did you mean mpe/line-control"),
        (["evaluate", "matrix-game", "--controller", "stay"], "no controllers of matrix-game, only of mpe/"),
        (["evaluate", "smac/3m", "--controller", "hold-the-choke"], "did you mean hold-the-line?"),
        (["evaluate", "mpe/line-control", "--controller", "stay", "--sample"], "no trained policy"),
        (["evaluate", "mpe/line-control", "--controller", "stay", "--policy", "dep"], "no trained policy"),
        (["evaluate", "mpe/line-control", "--controller", "stay", "--episodes", "0"], "must be positive"),
        (["resume"], "run"),
        (["bench", "everything"], "learner"),
    ],
)
def test_mistakes_are_one_sentence(
    args: list[str],
    expected: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert expected in said(capsys, *args)
    assert list(tmp_path.iterdir()) == []


def test_train_never_overwrites(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = str(tiny_run().path)
    assert "already holds a run" in said(capsys, "train", "macpf", "matrix-game", *FLAGS, "--out", run)
    (tmp_path / "thesis.tex").write_text("precious")
    sentence = said(capsys, "train", "macpf", "matrix-game", *FLAGS, "--out", str(tmp_path))
    assert "is not a run directory" in sentence
    assert (tmp_path / "thesis.tex").read_text() == "precious"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the tiny run, to be damaged."""
    return shutil.copytree(tiny_run().path, tmp_path / "copy")


def contents(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def damage_config(run: Path) -> None:
    (run / "config.json").write_text('{"format": 1, "exper')


def foreign_config(run: Path) -> None:
    (run / "config.json").write_text('{"name": "something else"}')


def other_format(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"format": 99}))


def other_task_version(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    config["versions"]["task"] = 0
    (run / "config.json").write_text(json.dumps(config))


def unknown_field(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    config["experiment"]["colour"] = "red"
    (run / "config.json").write_text(json.dumps(config))


def no_config(run: Path) -> None:
    (run / "config.json").unlink()


def flip_a_byte(run: Path) -> None:
    file = max(run.glob("checkpoints/*/learner.npz"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(bytes(data))


def cut_the_checkpoint(run: Path) -> None:
    file = max(run.glob("checkpoints/*/learner.npz"))
    file.write_bytes(file.read_bytes()[:1000])


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (damage_config, "is damaged"),
        (foreign_config, "is damaged"),
        (other_format, "has format 99"),
        (other_task_version, "whose rules have changed"),
        (unknown_field, "does not fit this version of macpf"),
        (no_config, "it has no config.json"),
        (flip_a_byte, "is damaged"),
        (cut_the_checkpoint, "is damaged"),
    ],
)
@pytest.mark.parametrize("command", ["evaluate", "resume"])
def test_a_damaged_run_is_told_and_left_alone(
    damage, expected: str, command: str, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(copy)
    before = contents(copy)
    assert expected in said(capsys, command, str(copy))
    assert contents(copy) == before


def test_evaluate_prints_every_seed(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "evaluate", str(tiny_run().path), "--policy", "dep", "--episodes", "3", "--sample")
    assert "sampled pi_dep" in out
    rows = [line.split()[1] for line in out.splitlines() if line.startswith("│")]
    assert rows == ["0", "1", "all"]


def test_evaluate_knows_the_policies(capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown policy of macpf" in said(capsys, "evaluate", str(tiny_run().path), "--policy", "indep")
    assert "episodes must be positive" in said(capsys, "evaluate", str(tiny_run().path), "--episodes", "0")


def test_evaluate_scores_a_controller(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "evaluate", "mpe/formation-control", "--controller", "stay", "--episodes", "5")
    assert "controller stay on" in out
    numbers = next(line for line in out.splitlines() if line.startswith("│")).split()[1::2]
    mean, half_width, std, _, steps = map(float, numbers)
    assert mean < -10
    assert half_width == pytest.approx(1.96 * std / 5**0.5, abs=0.01)
    assert steps == 25


def test_train_shows_the_joint_policy_and_the_figures(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    text = printed(capsys, "train", "macpf", "matrix-game", *FLAGS, "--out", str(out))
    assert "pi_dep, mean of 2 seeds" in text
    table = [line for line in text.splitlines() if line.startswith("│")]
    assert [line.split()[1] for line in table] == ["A", "B", "C", "D"]
    probabilities = [float(word) for line in table for word in line.split() if word[0].isdigit()]
    assert len(probabilities) == 16
    assert sum(probabilities) == pytest.approx(1, abs=0.1)
    for figure in ("learning_curves.png", "joint_policies.png"):
        assert (out / "figures" / figure).read_bytes().startswith(b"\x89PNG")
    assert str(out / "figures" / "joint_policies.png") in text


def smallest(name: str, task: str) -> list[str]:
    """Flags that make a short run of few units, those that the algorithm has."""
    algorithm: Any = macpf.experiment(name, task).algorithm
    sizes = {"hidden": 8, "ppo-epochs": 2, "layers": 1}
    flags = {flag: n for flag, n in sizes.items() if hasattr(algorithm, flag.replace("-", "_"))}
    mixer = getattr(algorithm, "mixer", None)
    for field in fields(mixer) if mixer is not None else ():
        if field.name in ("embed", "hidden", "heads", "layers"):
            flags[f"mixer.{field.name}"] = 2
    flags["parallel"] = 2
    if not algorithm.on_policy:
        flags |= {"replay": 8, "batch": 4, "burn-in": 4}
    return [word for flag, value in flags.items() for word in (f"--{flag}", str(value))]


# One of each kind somewhere; that training fits together for every algorithm, the conformance tests show.
RUNS = [
    ("macpf", "matrix-game"),
    ("macpf-plus", "matrix-game"),
    ("qmix", "matrix-game"),
    ("mappo", "matrix-game"),
    ("macpf-plus", "multi-goal"),
    ("fop", "multi-goal"),
    ("qtran", "multi-goal"),
    ("central", "multi-goal"),
    ("mappo", "mpe/simple-spread"),
    ("qplex", "mpe/line-control"),
    ("vdn", "smac/3m"),
]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_two_options_have_one_name(name: str, task: str) -> None:
    made = macpf.experiment(name, task)
    names = [field.name for part in (made.algorithm, made.env, made) for field in fields(part)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("name", "task"), RUNS)
def test_every_kind_of_algorithm_trains_several_seeds(
    name: str, task: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    length = ["--steps", "200", "--eval-every", "200", "--eval-episodes", "1", "--seeds", "2"]
    text = printed(capsys, "train", name, task, *smallest(name, task), *length, "--out", str(out))
    run = macpf.load(out)
    assert (run.experiment.name, run.experiment.task, run.seeds) == (name, task, (0, 1))
    last = run.metrics[-2:]
    assert [line["seed"] for line in last] == [0, 1]
    assert all(line["steps"] >= 200 for line in last)
    for policy in run.experiment.algorithm.policies:
        mean = sum(line[f"return_{policy}"] for line in last) / 2
        assert f"greedy pi_{policy}: return {mean:.2f} " in text


@pytest.mark.parametrize("option", OFF_POLICY)
def test_an_on_policy_algorithm_has_no_options_of_the_replay(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flag = f"--{option.replace('_', '-')}"
    sentence = said(capsys, "train", "mappo", "matrix-game", flag, "1")
    assert "nrecognized" in sentence
    assert flag in sentence
    with pytest.raises(SystemExit):
        main(["train", "mappo", "matrix-game", "--help"])
    assert f"{flag} " not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["train", "macpf", "matrix-game", "--help"])
    assert f"{flag} " in capsys.readouterr().out
