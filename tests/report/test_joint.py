"""The picture of the joint policies."""

import numpy as np

from macpf.report import curves, joint
from tests.tiny import tiny_run


def test_probabilities_of_all_joint_actions_sum_to_one() -> None:
    policies = joint.joint_policies(tiny_run())
    assert list(policies) == ["ind", "dep"]
    for p in policies.values():
        assert p.shape == (2, 4, 4)
        np.testing.assert_allclose(p.sum(axis=(1, 2)), 1, atol=1e-5)


def test_the_independent_joint_policy_is_a_product() -> None:
    for p in joint.joint_policies(tiny_run())["ind"]:
        np.testing.assert_allclose(p, np.outer(p.sum(axis=1), p.sum(axis=0)), atol=1e-6)


def test_curves_hold_every_evaluation_of_every_seed() -> None:
    steps, values = curves.curve(tiny_run(), "return_dep")
    assert values.shape == (2, 4)
    np.testing.assert_array_equal(steps, [18, 28, 38, 48])
    assert values[1, 2] == next(
        line["return_dep"] for line in tiny_run().metrics if line["seed"] == 1 and line["epoch"] == 3
    )
