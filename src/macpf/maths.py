"""The rules of reinforcement learning that several algorithms share: pure functions of one episode."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from macpf.types import PRNGKey

UNAVAILABLE = -1e9  # the logit of an action that cannot be taken: its probability is exactly 0


def taken(values: Float[Array, "*b A"], actions: Int[Array, "*b"]) -> Float[Array, "*b"]:
    """The value of the action taken.

    A product with a one-hot vector rather than a gather: its gradient is then no scatter, which on a GPU
    adds in no fixed order and would make two equal runs differ in their last bits.
    """
    return jnp.sum(values * jax.nn.one_hot(actions, values.shape[-1], dtype=values.dtype), axis=-1)


def log_softmax(logits: Float[Array, "*b A"], avail: Bool[Array, "*b A"]) -> Float[Array, "*b A"]:
    """Log-probabilities over the available actions."""
    return jax.nn.log_softmax(jnp.where(avail, logits, UNAVAILABLE))


def log_mixture(
    logits: Float[Array, "*b A"], avail: Bool[Array, "*b A"], epsilon: Float[Array, ""]
) -> Float[Array, "*b A"]:
    """Log-probabilities with `epsilon` spread over all actions and the unavailable ones then cut out."""
    mixed = (1 - epsilon) * jax.nn.softmax(logits) + epsilon / logits.shape[-1]
    cut = jnp.where(avail, mixed, 0.0)
    probs = cut / jnp.maximum(jnp.sum(cut, axis=-1, keepdims=True), 1e-10)
    return jnp.where(avail, jnp.log(jnp.maximum(probs, 1e-10)), UNAVAILABLE)


def greedy(values: Float[Array, "*b A"], avail: Bool[Array, "*b A"]) -> Int[Array, "*b"]:
    """The best available action."""
    return jnp.argmax(jnp.where(avail, values, -jnp.inf), axis=-1)


def pick(log_pi: Float[Array, "*b A"], luck: Float[Array, "*b"]) -> Int[Array, "*b"]:
    """The action that `luck`, uniform in [0, 1), draws from the policy by its cumulative distribution."""
    upto = jnp.cumsum(jnp.exp(log_pi), axis=-1)
    return jnp.sum(upto <= luck[..., None] * upto[..., -1:], axis=-1)


def best(values: Float[Array, "*b A"], avail: Bool[Array, "*b A"]) -> Float[Array, "*b"]:
    """The value of the best available action."""
    return jnp.max(jnp.where(avail, values, -jnp.inf), axis=-1)


def soft_value(
    q: Float[Array, "*b A"], avail: Bool[Array, "*b A"], alpha: Float[Array, ""]
) -> Float[Array, "*b"]:
    """alpha log sum_a exp(Q(a) / alpha) over the available actions."""
    return alpha * jax.nn.logsumexp(jnp.where(avail, q / alpha, UNAVAILABLE), axis=-1)


def forced_actions(
    avail: Bool[Array, "N A"], epsilon: Float[Array, ""] | float, key: PRNGKey
) -> Int[Array, " N"]:
    """A random available action for each agent that must explore, by chance `epsilon`; -1 for the others."""
    coin_key, action_key = jax.random.split(key)
    luck = jax.random.uniform(action_key, avail.shape[:1])
    random = pick(log_softmax(jnp.zeros(avail.shape), avail), luck)
    return jnp.where(jax.random.uniform(coin_key, avail.shape[:1]) < epsilon, random, -1)


def by_chance(
    actions: Int[Array, " N"], avail: Bool[Array, "N A"], epsilon: Float[Array, ""] | float, key: PRNGKey
) -> Int[Array, " N"]:
    """These actions, but for the agents that must explore."""
    forced = forced_actions(avail, epsilon, key)
    return jnp.where(forced >= 0, forced, actions)


def entropy(log_pi: Float[Array, "*b A"]) -> Float[Array, "*b"]:
    """The entropy of a policy."""
    return -jnp.sum(jnp.exp(log_pi) * log_pi, axis=-1)


def masked_mean(values: Float[Array, "*b"], mask: Bool[Array, "*b"]) -> Float[Array, ""]:
    """The mean over the entries that count (0 where none does)."""
    return jnp.sum(jnp.where(mask, values, 0.0)) / jnp.maximum(jnp.sum(mask), 1)


def soft_improvement(
    log_pi: Float[Array, "*b A"], q: Float[Array, "*b A"], alpha: Float[Array, ""]
) -> Float[Array, "*b"]:
    """E_pi[alpha log pi - Q]: alpha times the divergence of pi from exp(Q / alpha), up to a constant."""
    return jnp.sum(jnp.exp(log_pi) * (alpha * log_pi - q), axis=-1)


def soft_imitation(
    log_pi: Float[Array, "*b A"], q: Float[Array, "*b A"], avail: Bool[Array, "*b A"], alpha: Float[Array, ""]
) -> Float[Array, "*b"]:
    """The divergence of exp(Q / alpha) from pi, up to a constant.

    Least for the same pi as `soft_improvement`, but its gradient pi - exp(Q / alpha) does not vanish where pi
    is sure of a wrong action.
    """
    return -jnp.sum(jnp.exp(log_softmax(q / alpha, avail)) * log_pi, axis=-1)


def soft_regression(
    logits: Float[Array, "*b A"], q: Float[Array, "*b A"], avail: Bool[Array, "*b A"], alpha: Float[Array, ""]
) -> Float[Array, "*b"]:
    """The squared distance of alpha times the logits from the soft advantages.

    Least for the same policy as `soft_improvement`, without plateaus. Where Q varies with what a policy does
    not see, both come to exp(E[Q] / alpha): what is best on average. `soft_imitation` comes to the mean of
    the policies exp(Q / alpha), at low temperatures what is best most often.
    """
    advantage = q - soft_value(q, avail, alpha)[..., None]
    return jnp.sum(jnp.where(avail, (alpha * logits - advantage) ** 2, 0.0), axis=-1)


def td_lambda(
    reward: Float[Array, " T"],
    terminated: Bool[Array, " T"],
    mask: Bool[Array, " T"],
    value: Float[Array, " T+1"],
    gamma: float,
    lambda_: float,
) -> Float[Array, " T"]:
    """The returns G_t = r_t + gamma (1 - d_t) [(1 - lambda) V_{t+1} + lambda G_{t+1}] of one episode.

    An episode that was cut off (by its time limit, at whatever row) goes on in the value of the row
    behind its last one; one that terminated does not: this is the only place that makes the difference.
    """
    on = gamma * (1.0 - terminated)
    carry = on * lambda_ * jnp.append(mask[1:], False)  # G_{t+1} counts where row t+1 is of this episode
    g = reward + (on - carry) * value[1:]

    def compose(later, earlier):  # G_t = g + carry G_{t+1} is affine, and affine maps compose
        return earlier[0] + earlier[1] * later[0], earlier[1] * later[1]

    return jax.lax.associative_scan(compose, (g, carry), reverse=True)[0]


def gae(
    reward: Float[Array, " T"],
    terminated: Bool[Array, " T"],
    mask: Bool[Array, " T"],
    value: Float[Array, " T+1"],
    gamma: float,
    lambda_: float,
) -> Float[Array, " T"]:
    """Generalised advantages A_t = delta_t + gamma lambda (1 - d_t) A_{t+1}: lambda-returns less values."""
    return td_lambda(reward, terminated, mask, value, gamma, lambda_) - value[:-1]
