"""Models that live beside the one that is trained: each works in turn while the others rest in memory.

Example: PPO on Llama-2-7B in bf16 keeps the policy's weights and optimizer (40.4 GB), a value model that is trained too
(39.9 GB), and a frozen reference and reward model (13.5 and 13.2 GB) on the GPUs, whichever of them is at work. A policy
trained with LoRA needs no reference of its own: with its adapters switched off it is the reference (PEFT, TRL).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from costguard.sizing.architecture import Architecture
from costguard.sizing.recipe import Recipe

SCORE_NUMBERS = 1
"""Outputs of the head of a reward or value model: one number a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """One model beside the policy. `quant`: of its weights where it is frozen; a trained one is held as the policy is.

    `copy`: it is the policy as it was before training, so where only adapters are trained it needs no weights of its own.
    """

    role: str
    architecture: Architecture
    trained: bool = False
    quant: str = "none"
    copy: bool = False

    def is_shared_with(self, policy: Recipe) -> bool:
        """Whether it is the policy itself with its adapters off: it works, but holds nothing."""
        return self.copy and policy.adapters

    def build_recipe(self, policy: Recipe) -> Recipe:
        """How it lives beside a policy trained so: frozen weights are held in 16 bits, or fp32 where all is fp32."""
        if self.trained:
            return policy
        precision = "bf16" if policy.precision == "fp8" else policy.precision
        return replace(policy, method="inference", quant=self.quant, precision=precision, gradient_accumulation=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceTraining:
    """What a job has besides its policy: companions, and what each example asks of them.

    `sequences`: sequences of one example that pass together (2: a chosen and a rejected one). `generation_batch`: sequences
    each copy of the policy writes at once, 0 where it writes none. `completions`: for each prompt. `updates`: training passes
    over each batch. `algorithm`: the name under which people know the whole; nothing is decided by it.
    """

    algorithm: str
    companions: tuple[Companion, ...]
    prompt_len: int
    completion_len: int
    sequences: int = 1
    completions: int = 1
    generation_batch: int = 0
    updates: int = 1

    @property
    def generates(self) -> bool:
        """Whether the policy writes what it is trained on."""
        return self.generation_batch > 0

    @property
    def example_tokens(self) -> int:
        """Tokens of one prompt of the data set with all that is trained on because of it."""
        return self.sequences * self.completions * (self.prompt_len + self.completion_len)

    def list_with_weights(self, policy: Recipe) -> tuple[Companion, ...]:
        """Companions that hold weights of their own."""
        return tuple(c for c in self.companions if not c.is_shared_with(policy))


def build_scoring_model(architecture: Architecture) -> Architecture:
    """`architecture` as a reward or value model: one number a token instead of a vocabulary."""
    return replace(
        architecture,
        has_head=False,
        tied_embeddings=False,
        stated_params=None if architecture.stated_params is None else architecture.stated_params - architecture.head_parameters,
        extras=(*architecture.extras, ("score", SCORE_NUMBERS * architecture.hidden)),
    )
