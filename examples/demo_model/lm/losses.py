"""What the language model is trained for, and how well it does on calls it never saw.

Nothing here waits for the device, so a whole step can be recorded as one CUDA graph.

Legend: B calls, T columns, M frames that the depformer is trained on.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from examples.demo_model.lm.columns import AGENT, USER
from examples.demo_model.lm.layers import TrainingLm
from examples.demo_model.sizes import CARD, DELAYS, NUM_STEPS
from livekit_personaplex.model.prompt import PAD_TOKEN, SILENCE_CODES
from livekit_personaplex.model.text import EPAD_TOKEN

PROMPT, LIVE, FACT, READ = 0, 1, 2, 3
"""Roles of a column: prompt or nothing; judged; its text is a fact; its text is only read."""
MUTE = 4
"""Added to the role of a column in which only the text is judged."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Calls as columns, on one device.

    Attributes:
        columns: ``[B, 17, T]`` integers.
        heard: ``[B, T]`` pieces of the caller's words, -1 unknown.
        role: ``[B, T]`` PROMPT, LIVE, FACT or READ, the last three perhaps with MUTE.
    """

    columns: torch.Tensor
    heard: torch.Tensor
    role: torch.Tensor


@dataclass(frozen=True, slots=True)
class LossWeights:
    """Shares of the losses, and noise on what goes in."""

    text: float = 2.0
    heard: float = 0.7
    pad: float = 0.3
    epad: float = 0.6
    word: float = 1.5
    fact: float = 5.0
    codebooks: tuple[float, ...] = (1.0, 0.3, 0.2, 0.15, 0.12, 0.1, 0.1, 0.1)
    depth_share: float = 0.22
    loud_first: float = 0.8
    agent_noise: float = 0.015
    user_noise: float = 0.03
    jump_share: float = 0.4


METRICS = ("loss", "text", "words", "facts", "heard", "heard_words", "code1", "code2", "code8")
"""Names of what `TrainingLoss` measures; words, facts and heard_words are shares of pieces."""


class TrainingLoss:
    """The loss of a batch; constants lie on the device, where a recorded step finds them."""

    def __init__(self, weights: LossWeights, *, dtype: torch.dtype, device: torch.device) -> None:
        """Make the constants.

        Args:
            weights: Shares.
            dtype: What matrices are multiplied in.
            device: Of network and batches.
        """
        self._weights, self._dtype = weights, dtype
        self._shares = torch.tensor(weights.codebooks, device=device)
        self._silence = torch.tensor(SILENCE_CODES[:4], device=device).unsqueeze(1)
        noise = torch.zeros(len(DELAYS))
        noise[AGENT], noise[USER] = weights.agent_noise, weights.user_noise
        self._noise = noise.unsqueeze(1).to(device)

    def __call__(self, net: TrainingLm, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Give the scalar loss, and `METRICS` as one detached tensor."""
        columns, role, weights = batch.columns.long(), batch.role, self._weights
        inputs = self._add_noise(columns, role)[:, :, :-1]
        positions = _jump(role, net.sizes.temporal.context, weights.jump_share)[:, :-1]
        targets, roles = columns[:, :, 1:], role[:, 1:]
        is_first = (roles > PROMPT) & (role[:, :-1] == PROMPT)
        use_autocast = self._dtype != torch.float32
        with torch.autocast(columns.device.type, self._dtype, enabled=use_autocast):
            hidden, tapped = net.trunk(inputs, positions)
            text_logits = net.text_logits(hidden)
            heard_logits = net.heard_logits(tapped)
            picked = self._pick_frames(targets, roles)
            frames = targets[:, :9].transpose(1, 2).flatten(0, 1).index_select(0, picked)
            depth_logits = net.depth(hidden.flatten(0, 1).index_select(0, picked), frames)
        text, words, facts = _text_loss(text_logits, targets[:, 0], roles, weights)
        heard, heard_words = _heard_loss(heard_logits, batch.heard[:, 1:].long(), roles)
        is_heard = (roles > PROMPT) & (roles < MUTE)
        codes = _code_losses(
            depth_logits, frames, is_heard.flatten()[picked], is_first.flatten()[picked]
        )
        loss = weights.text * text + weights.heard * heard + (self._shares * codes).sum()
        metrics = [loss, text, words, facts, heard, heard_words, codes[0], codes[1], codes[7]]
        return loss, torch.stack(metrics).detach()

    def _add_noise(self, columns: torch.Tensor, role: torch.Tensor) -> torch.Tensor:
        """Replace some live codes by any others, so that the model bears its own slips."""
        is_noise = torch.rand(columns.shape, device=columns.device) < self._noise
        is_noise &= (role > PROMPT).unsqueeze(1) & (columns < CARD)
        return torch.where(is_noise, torch.randint_like(columns, CARD), columns)

    def _pick_frames(self, targets: torch.Tensor, roles: torch.Tensor) -> torch.Tensor:
        """Choose frames for the depformer, speech first: ``[M]`` indices into B * (T - 1)."""
        is_loud = (targets[:, 1:5] != self._silence).sum(1) > 1
        order = torch.rand(roles.shape, device=roles.device) + self._weights.loud_first * is_loud
        order = order - 10.0 * ((roles == PROMPT) | (roles >= MUTE))
        count = int(self._weights.depth_share * order.numel())
        return order.flatten().topk(count, sorted=False).indices


@torch.no_grad()
def judge(net: TrainingLm, batch: Batch, *, dtype: torch.dtype) -> torch.Tensor:
    """Count on calls without noise what is right with everything before it given.

    Returns:
        ``[8] float64`` on the device: whole facts right and all, their pieces right and all,
        pieces of words right and all, heard pieces right and all.
    """
    columns, role = batch.columns.long(), batch.role
    positions = torch.arange(columns.shape[2] - 1, device=columns.device).unsqueeze(0)
    with torch.autocast(columns.device.type, dtype, enabled=dtype != torch.float32):
        hidden, tapped = net.trunk(columns[:, :, :-1], positions)
        is_right = net.text_logits(hidden).argmax(-1) == columns[:, 0, 1:]
        heard = batch.heard[:, 1:].long()
        heard_right = net.heard_logits(tapped).argmax(-1) == heard
    roles = role[:, 1:] % MUTE
    fact = roles == FACT
    word = ((roles == LIVE) | fact) & (columns[:, 0, 1:] > PAD_TOKEN)
    heard_word = (roles > PROMPT) & (heard > PAD_TOKEN)
    whole, wholes = _whole_facts(fact, is_right)
    counts = [whole, wholes]
    for right, asked in ((is_right, fact), (is_right, word), (heard_right, heard_word)):
        counts += [(right & asked).sum(), asked.sum()]
    return torch.stack([count.double() for count in counts])


def _whole_facts(fact: torch.Tensor, is_right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Count runs of fact pieces: those right from end to end, and all."""
    begins = fact & ~F.pad(fact, (1, 0))[:, :-1]
    number = begins.flatten().cumsum(0)
    wrong = torch.zeros(number.shape[0] + 1, device=fact.device)
    wrong.index_add_(0, number, (fact & ~is_right).flatten().float())
    num_facts = number[-1]
    is_fact = (torch.arange(len(wrong), device=fact.device) <= num_facts) & (wrong == 0)
    return is_fact[1:].sum(), num_facts


def _jump(role: torch.Tensor, context: int, share: float) -> torch.Tensor:
    """Give positions; in some calls they jump, so that personas lie as far back as in long calls.

    Half of the jumps are between prompt and call, half anywhere in the call.
    """
    batch, length = role.shape
    device = role.device
    prompt = (role > PROMPT).long().argmax(1, keepdim=True)
    draws = torch.rand(4, batch, 1, device=device)
    far = draws[1].pow(1.5) * max(0, context - length - 10) * (draws[0] < share)
    at = prompt + (draws[2] * (length - prompt) * (draws[3] < 0.5)).long()
    steps = torch.arange(length, device=device).unsqueeze(0)
    return steps + far.long() * (steps >= at)


def _text_loss(
    logits: torch.Tensor, target: torch.Tensor, roles: torch.Tensor, weights: LossWeights
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Cross entropy by kind of piece; shares of words' and facts' pieces that are right."""
    roles = roles % MUTE
    judged = (roles == LIVE) | (roles == FACT)
    scale = torch.full(target.shape, weights.word, device=target.device)
    scale = scale.masked_fill(target == PAD_TOKEN, weights.pad)
    scale = scale.masked_fill(target == EPAD_TOKEN, weights.epad)
    scale = scale.masked_fill(roles == FACT, weights.fact) * judged
    loss = _weighted(logits, target, scale)
    is_right = logits.argmax(-1) == target
    word, fact = judged & (target > PAD_TOKEN), roles == FACT
    return loss, _share(is_right, word), _share(is_right, fact)


def _heard_loss(
    logits: torch.Tensor, target: torch.Tensor, roles: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    known = (roles > PROMPT) & (target >= 0)
    scale = torch.ones(target.shape, device=target.device)
    scale = scale.masked_fill(target == PAD_TOKEN, 0.1).masked_fill(target == EPAD_TOKEN, 0.2)
    loss = _weighted(logits, target.clamp(min=0), scale * known)
    return loss, _share(logits.argmax(-1) == target, known & (target > PAD_TOKEN))


def _code_losses(
    logits: torch.Tensor, frames: torch.Tensor, is_live: torch.Tensor, is_first: torch.Tensor
) -> torch.Tensor:
    """``[8]``; of a call's first column the delayed codebooks belong to the prompt."""
    codes = frames[:, 1:].T.clamp(max=CARD - 1).flatten()  # a prompt's first column has no codes
    loss = F.cross_entropy(logits.float().flatten(0, 1), codes, reduction="none")
    loss = loss.view(NUM_STEPS, -1)
    late = torch.arange(NUM_STEPS, device=loss.device).unsqueeze(1) > 0
    scale = (is_live & ~(is_first & late)).float()
    return (loss * scale).sum(1) / scale.sum(1).clamp(min=1.0)


def _weighted(logits: torch.Tensor, target: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    loss = F.cross_entropy(logits.float().flatten(0, 1), target.flatten(), reduction="none")
    return (loss * scale.flatten()).sum() / scale.sum().clamp(min=1.0)


def _share(is_right: torch.Tensor, asked: torch.Tensor) -> torch.Tensor:
    return (is_right & asked).sum() / asked.sum().clamp(min=1)
