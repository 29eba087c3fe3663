"""Steering the text stream: the model chooses when to say a word, the given words which.

While words are given and not yet said, no other word is begun. Of what the model samples then:

* PAD and EPAD are kept, up to the patience of the next given word; then EPAD is said, and the word;
* a token that begins a word is replaced by the next given word, whose other tokens follow at once;
* a token that goes on with a word of the model's own is kept: that word is finished;
* one that would go on with a given word becomes EPAD, after which the model begins the next.

Then the model is free again. A conversation that is held says nothing until it is released.

Every tensor is made once and written in place; no host synchronisation, no branch on values. Rows
that are not steered keep the sampled token.

Legend: B slots of a group, S slots, F ring length, V text vocabulary.
"""

from dataclasses import dataclass

import torch

from livekit_personaplex.model.given_words import MAX_GIVEN_TOKENS, GivenWords
from livekit_personaplex.model.text import EPAD_TOKEN, PAD_TOKEN


@dataclass(frozen=True, slots=True)
class Steering:
    """Given words of every slot.

    Attributes:
        words: ``[S, F, 2] int64`` ring of (token, patience).
        given: ``[S] int64`` tokens written to the ring since the conversation began.
        said: ``[S] int64`` tokens read from it.
        pads: ``[S] int64`` steps in a row without a word.
        in_own_word: ``[S] bool`` the last text token is of a word that the model chose.
        held: ``[S] bool`` nothing may be said.
        word_starts: ``[V] bool`` tokens that begin a word; of the vocabulary, not of slots.
    """

    words: torch.Tensor
    given: torch.Tensor
    said: torch.Tensor
    pads: torch.Tensor
    in_own_word: torch.Tensor
    held: torch.Tensor
    word_starts: torch.Tensor

    @staticmethod
    def create(num_slots: int, word_starts: torch.Tensor) -> "Steering":
        """Make state in which nothing is steered, on the device of ``word_starts``."""
        device = word_starts.device

        def zeros(*shape: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        return Steering(
            words=zeros(num_slots, MAX_GIVEN_TOKENS, 2, dtype=torch.int64),
            given=zeros(num_slots, dtype=torch.int64),
            said=zeros(num_slots, dtype=torch.int64),
            pads=zeros(num_slots, dtype=torch.int64),
            in_own_word=zeros(num_slots, dtype=torch.bool),
            held=zeros(num_slots, dtype=torch.bool),
            word_starts=word_starts,
        )

    def view(self, group: slice) -> "Steering":
        """Views of a contiguous range of slots; writes go to the whole."""
        return Steering(
            words=self.words[group],
            given=self.given[group],
            said=self.said[group],
            pads=self.pads[group],
            in_own_word=self.in_own_word[group],
            held=self.held[group],
            word_starts=self.word_starts,
        )

    def reset(self, slot: int) -> None:
        """Leave nothing of a slot's former conversation."""
        for tensor in (self.given, self.said, self.pads, self.in_own_word, self.held):
            tensor[slot] = 0

    def give(self, slot: int, words: GivenWords, *, position: int) -> None:
        """Add words behind those already given.

        Args:
            slot: Whose.
            words: As many as the ring has room for.
            position: How many tokens the slot was given before.
        """
        ring = self.words.shape[1]
        places = (torch.arange(position, position + len(words)) % ring).to(self.words.device)
        self.words[slot, places] = torch.from_numpy(words.entries).to(self.words.device)
        self.given[slot] = position + len(words)

    def drop(self, slot: int) -> None:
        """Take back what a slot was given and has not said."""
        self.said[slot] = self.given[slot]

    def choose(
        self, sampled: torch.Tensor, *, previous: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Choose this step's text tokens; advances the state in place.

        Args:
            sampled: ``[B] int64`` what the model would say.
            previous: ``[B] int64`` text token of the step before.
            mask: ``[B] bool``: False rows leave no trace.

        Returns:
            ``[B] int64``.
        """
        place = (self.said % self.words.shape[1]).view(-1, 1, 1).expand(-1, 1, 2)
        token, patience = self.words.gather(1, place).squeeze(1).unbind(1)
        starts, is_silent = self.word_starts[sampled], _is_silent(sampled)
        is_late = self.pads >= patience
        goes_on = self.in_own_word & ~starts & (patience > 0)
        is_pending = self.said < self.given
        says = is_pending & ~self.held & ~goes_on
        says &= (patience == 0) | starts | ((is_late | ~is_silent) & (previous == EPAD_TOKEN))
        waiting = torch.where(goes_on | (is_silent & ~is_late), sampled, EPAD_TOKEN)
        text = torch.where(says, token, torch.where(is_pending, waiting, sampled))
        text = torch.where(self.held, PAD_TOKEN, text)
        is_word = ~_is_silent(text)
        self.said.add_(says & mask)
        self.pads.copy_(torch.where(mask, (self.pads + 1) * ~is_word, self.pads))
        self.in_own_word.copy_(torch.where(mask, is_word & ~says, self.in_own_word))
        return text


def _is_silent(tokens: torch.Tensor) -> torch.Tensor:
    return (tokens == PAD_TOKEN) | (tokens == EPAD_TOKEN)
