"""What a run directory holds."""

import json

import macpf
from tests.tiny import tiny_run


def test_config_holds_the_whole_experiment_and_versions() -> None:
    run = tiny_run()
    config = json.loads((run.path / "config.json").read_text())
    assert config["seeds"] == [0, 1]
    assert config["experiment"]["algorithm"]["hidden"] == 8
    assert config["experiment"]["algorithm"]["alpha"]["type"] == "Exponential"
    assert set(config["versions"]) >= {"macpf", "jax", "python", "task", "device"}
    assert config["versions"]["macpf"] == macpf.__version__


def test_metrics_have_one_line_per_evaluation_and_seed() -> None:
    run = tiny_run()
    assert [(line["epoch"], line["seed"]) for line in run.metrics] == [
        (e, s) for e in range(1, 5) for s in (0, 1)
    ]
    burn_in, per_epoch = 8, 10
    for line in run.metrics:
        assert line["steps"] == line["episodes"] == burn_in + per_epoch * line["epoch"]
        assert line["updates"] == per_epoch * line["epoch"]
        assert line["length_ind"] == 1
        assert {"return_ind", "return_dep", "won_ind", "j_ind", "l_dep", "alpha", "wall_s"} <= set(line)


def test_results_follow_marl_eval() -> None:
    run = tiny_run()
    tree = json.loads((run.path / "results.json").read_text())
    seeds = tree["matrix-game"]["matrix-game"]["macpf"]
    assert set(seeds) == {"seed_0", "seed_1"}
    for seed, name in enumerate(seeds):
        steps = seeds[name]
        assert list(steps) == ["step_0", "step_1", "step_2", "step_3", "absolute_metrics"]
        returns = [line["return_ind"] for line in run.metrics if line["seed"] == seed]
        assert [steps[f"step_{k}"]["return_ind"] for k in range(4)] == [[r] for r in returns]
        assert steps["absolute_metrics"]["return_ind"] == [max(returns)]


def test_a_line_cut_short_is_no_line() -> None:
    run = tiny_run()
    file = run.directory.metrics_file
    whole = file.read_text()
    try:
        file.write_text(whole + '{"seed": 0, "epo')
        assert run.directory.read_metrics() == run.metrics
    finally:
        file.write_text(whole)


def test_tensorboard_has_a_log_per_seed() -> None:
    logs = tiny_run().path / "tensorboard"
    for seed in (0, 1):
        assert any(b"return_ind" in file.read_bytes() for file in (logs / f"seed_{seed}").iterdir())
