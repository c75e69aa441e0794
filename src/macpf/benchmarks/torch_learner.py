"""The peer of the speed benchmark: one training iteration of MACPF in plain PyTorch, on random data.

Written the way PyMARL's users write it: a Python loop over time around `nn.GRUCell`, and a Python loop over
the agents for the dependent chain. The only file that knows torch, which is no dependency of the package.
"""
# pyright: reportMissingImports=false

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.distributions import Categorical

HIDDEN = 64
UNAVAILABLE = -1e9
GAMMA, LAMBDA, ALPHA, CLIP = 0.99, 0.8, 0.1, 10.0


@dataclass(frozen=True)
class Batch:
    """A batch of episodes: `B` episodes of `T` steps and the row after the last of `N` agents."""

    obs: Tensor  # [B, T+1, N, O]
    state: Tensor  # [B, T+1, S]
    avail: Tensor  # [B, T+1, N, A]
    actions: Tensor  # [B, T+1, N]
    reward: Tensor  # [B, T]
    terminated: Tensor  # [B, T]
    mask: Tensor  # [B, T]
    visibility: Tensor  # [B, T+1, N, N], the receiver first

    def inputs(self) -> Tensor:
        """What each agent's recurrent networks read: own observation, previous action, agent id."""
        n, a = self.avail.shape[-2:]
        previous = F.pad(F.one_hot(self.actions[:, :-1], a).float(), (0, 0, 0, 0, 1, 0))
        ids = torch.eye(n, device=self.obs.device).expand(*self.obs.shape[:3], n)
        return torch.cat([self.obs, previous, ids], dim=-1)


def random_batch(agents: int, actions: int, obs: int, state: int, steps: int, batch: int, dev: str) -> Batch:
    """Random episodes of full length, every agent seeing every other."""
    rows = (batch, steps + 1)
    always = F.one_hot(torch.randint(actions, (*rows, agents), device=dev), actions).bool()
    avail = always | (torch.rand(*rows, agents, actions, device=dev) < 0.7)
    return Batch(
        obs=torch.randn(*rows, agents, obs, device=dev),
        state=torch.randn(*rows, state, device=dev),
        avail=avail,
        actions=Categorical(probs=avail.float()).sample(),
        reward=torch.randn(batch, steps, device=dev),
        terminated=torch.zeros(batch, steps, device=dev),
        mask=torch.ones(batch, steps, device=dev),
        visibility=torch.ones(*rows, agents, agents, device=dev),
    )


class Recurrent(nn.Module):
    """A recurrent network that all agents share: the policy's logits or the critic's values."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.enter = nn.Linear(inputs, HIDDEN)
        self.cell = nn.GRUCell(HIDDEN, HIDDEN)
        self.head = nn.Linear(HIDDEN, actions)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The hidden states and the outputs at every row of the episodes."""
        b, rows, n, _ = inputs.shape
        features = F.relu(self.enter(inputs)).transpose(0, 1).reshape(rows, b * n, HIDDEN)
        hidden = features.new_zeros(b * n, HIDDEN)
        states = []
        for feature in features.unbind(0):
            hidden = self.cell(feature, hidden)
            states.append(hidden)
        trunk = torch.stack(states).view(rows, b, n, HIDDEN).transpose(0, 1)
        return trunk, self.head(trunk)


class Correction(nn.Module):
    """What the actions of an agent's predecessors add to its logits or values."""

    def __init__(self, agents: int, actions: int) -> None:
        super().__init__()
        self.agents, self.actions = agents, actions
        self.embed = nn.Linear(agents + actions, HIDDEN)
        self.head = nn.Linear(2 * HIDDEN, actions)

    def messages(self, first: int, actions: Tensor) -> Tensor:
        """The embedded actions [B, T+1, n] of the `n` agents from `first` on."""
        ids = torch.eye(self.agents, device=actions.device)[first : first + actions.shape[-1]]
        ids = ids.expand(*actions.shape, self.agents)
        return F.elu(self.embed(torch.cat([ids, F.one_hot(actions, self.actions).float()], dim=-1)))

    def forward(self, trunk: Tensor, messages: Tensor, visibility: Tensor) -> Tensor:
        """The corrections of the receivers, given the senders' messages and who sees whom."""
        received = visibility @ messages / self.agents
        return self.head(torch.cat([trunk, received], dim=-1))


class Mixer(nn.Module):
    """A linear mixer of the agents' values, its weights made from the state and never negative."""

    def __init__(self, agents: int, state: int) -> None:
        super().__init__()
        self.w1 = _two_layers(state, HIDDEN * agents)
        self.b1 = nn.Linear(state, HIDDEN)
        self.w2 = _two_layers(state, HIDDEN)
        self.value = _two_layers(state, 1)

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        """The joint value [B, T] of the agents' values [B, T, N]."""
        w1 = self.w1(state).abs().view(*values.shape, HIDDEN)
        mixed = (values.unsqueeze(-2) @ w1).squeeze(-2) + self.b1(state)
        return (mixed * self.w2(state).abs()).sum(-1) + self.value(state).squeeze(-1)


def _two_layers(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs))


class Learner:
    """The networks, their target copies and an optimiser for each of the four losses."""

    def __init__(self, agents: int, actions: int, obs: int, state: int, device: str) -> None:
        inputs = obs + actions + agents
        self.policy = Recurrent(inputs, actions).to(device)
        self.critic = Recurrent(inputs, actions).to(device)
        self.policy_dep = Correction(agents, actions).to(device)
        self.critic_dep = Correction(agents, actions).to(device)
        self.mixer = Mixer(agents, state).to(device)
        self.target_critic = deepcopy(self.critic)
        self.target_critic_dep = deepcopy(self.critic_dep)
        self.target_mixer = deepcopy(self.mixer)
        self.policy_step = _stepper(self.policy)
        self.policy_dep_step = _stepper(self.policy_dep)
        self.critic_step = _stepper(self.critic, self.mixer)
        self.critic_dep_step = _stepper(self.critic_dep, self.mixer)

    def iterate(self, batch: Batch) -> float:
        """One training iteration: four losses, each with its own step; returns their sum."""
        inputs, before = batch.inputs(), batch.visibility.tril(-1)

        logits = self.policy(inputs)[1]
        critic_trunk, q = self.critic(inputs)  # serves three losses: only the third one moves the critic
        j_ind = policy_loss(log_softmax(logits, batch.avail), q.detach(), batch.mask)
        self.policy_step(j_ind)

        with torch.no_grad():
            trunk, logits = self.policy(inputs)
        chosen, log_pi = self.chain(trunk, logits, batch)
        with torch.no_grad():
            q_dep = q + self.critic_dep(critic_trunk, self.critic_dep.messages(0, chosen), before)
        j_dep = policy_loss(log_pi, q_dep, batch.mask)
        self.policy_dep_step(j_dep)

        with torch.no_grad():
            log_pi = log_softmax(logits, batch.avail)
            target_trunk, target_q = self.target_critic(inputs)
            target = self.target(target_q, sample(log_pi), log_pi, batch)
        l_ind = self.critic_loss(q, target, batch)
        self.critic_step(l_ind)

        with torch.no_grad():
            critic_trunk, q = self.critic(inputs)
            chosen, log_pi = self.chain(trunk, logits, batch)
            messages = self.target_critic_dep.messages(0, chosen)
            target_q_dep = target_q + self.target_critic_dep(target_trunk, messages, before)
            target = self.target(target_q_dep, chosen, log_pi, batch)
        q_dep = q + self.critic_dep(critic_trunk, self.critic_dep.messages(0, batch.actions), before)
        l_dep = self.critic_loss(q_dep, target, batch)
        self.critic_dep_step(l_dep)

        return (j_ind + j_dep + l_ind + l_dep).item()

    def chain(self, trunk: Tensor, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Actions drawn agent after agent, each knowing its predecessors', and all log-probabilities."""
        messages = trunk[:, :, :0]
        chosen, log_pis = [], []
        for i in range(trunk.shape[2]):
            now = slice(i, i + 1)
            correction = self.policy_dep(trunk[:, :, now], messages, batch.visibility[:, :, now, :i])
            log_pi = log_softmax(logits[:, :, now] + correction, batch.avail[:, :, now])
            action = sample(log_pi.detach())
            messages = torch.cat([messages, self.policy_dep.messages(i, action)], dim=2)
            chosen.append(action)
            log_pis.append(log_pi)
        return torch.cat(chosen, dim=2), torch.cat(log_pis, dim=2)

    def target(self, values: Tensor, chosen: Tensor, log_pi: Tensor, batch: Batch) -> Tensor:
        """The TD(lambda) target [B, T] of the target networks' values at the chosen actions."""
        following = self.target_mixer(taken(values, chosen)[:, 1:], batch.state[:, 1:])
        going = GAMMA * (1 - batch.terminated)
        result, returns = following[:, -1], []
        for t in reversed(range(following.shape[1])):
            result = batch.reward[:, t] + going[:, t] * ((1 - LAMBDA) * following[:, t] + LAMBDA * result)
            returns.append(result)
        surprise = taken(log_pi, chosen)[:, 1:].mean(-1)
        return torch.stack(returns[::-1], dim=1) - ALPHA * going * surprise

    def critic_loss(self, values: Tensor, target: Tensor, batch: Batch) -> Tensor:
        """The mean squared error of the joint value of the actions in the batch."""
        joint = self.mixer(taken(values, batch.actions)[:, :-1], batch.state[:, :-1])
        return ((joint - target) ** 2 * batch.mask).sum() / batch.mask.sum()


def policy_loss(log_pi: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """The mean over agents and steps of the expected value's negative, less the weighted entropy."""
    per_agent = (log_pi.exp() * (ALPHA * log_pi - values)).sum(-1)[:, :-1]
    return (per_agent.mean(-1) * mask).sum() / mask.sum()


def log_softmax(logits: Tensor, avail: Tensor) -> Tensor:
    """Log-probabilities over the available actions."""
    return F.log_softmax(logits.masked_fill(~avail, UNAVAILABLE), dim=-1)


def sample(log_pi: Tensor) -> Tensor:
    """One action from each distribution."""
    return Categorical(logits=log_pi, validate_args=False).sample()


def taken(values: Tensor, actions: Tensor) -> Tensor:
    """The value of the action taken."""
    return values.gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def _stepper(*networks: nn.Module) -> Callable[[Tensor], None]:
    parameters = [parameter for network in networks for parameter in network.parameters()]
    optimiser = torch.optim.RMSprop(parameters, lr=5e-4, alpha=0.99, eps=1e-5)

    def step(loss: Tensor) -> None:
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, CLIP)
        optimiser.step()

    return step


def make_iteration(
    agents: int, actions: int, obs: int, state: int, steps: int, batch: int, device: str
) -> Callable[[], float]:
    """A function that runs one training iteration on a fixed random batch and returns the sum of losses."""
    torch.manual_seed(0)
    learner = Learner(agents, actions, obs, state, device)
    episodes = random_batch(agents, actions, obs, state, steps, batch, device)
    return lambda: learner.iterate(episodes)
