"""The `[preference]` table of a job file: training on comparisons or rewards, with other models besides the policy.

    [preference]
    algorithm = "ppo"          # dpo | ppo | grpo: sets the defaults of the keys below
    reference = true           # a frozen copy of the policy that limits how far training may move it
    reward_model = "same"      # same (the policy's shape) | none (a rule gives the reward) | a shipped name
    value_model = "same"       # same | none | head (on the policy) | a shipped name; trained like the policy
    completions = 1            # for each prompt; GRPO's group
    generation_batch = 32      # sequences each copy generates at once
    rollout_tp = 2             # GPUs of one copy of the engine that generates (vLLM, SGLang), beside the policy's weights
    prompt_len = 512           # prompt_len + completion_len = seq_len
    completion_len = 512
    updates = 1                # training passes over each batch of completions
    frozen_quant = "none"      # none | nf4 | int8 | int4: of the frozen models

`tokens` counts each prompt and completion once; for DPO, the chosen and the rejected one. `micro_batch` counts examples; for
DPO, pairs. Missing keys are assumed and listed as assumptions.

The companion models share the GPUs with the trained policy: one computes at a time, the others stay in memory.

Example: PPO on Llama-2-7B in bf16 keeps on the GPUs the policy's weights and optimizer (40.4 GB), a value model that is also
trained (39.9 GB), and a frozen reference and reward model (13.5 and 13.2 GB), whichever of them computes. A policy trained with
LoRA needs no separate reference: the policy with its adapters switched off is the reference (PEFT, TRL).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from costguard.errors import InputError
from costguard.sizing.architecture import Architecture
from costguard.sizing.recipe import Parallelism, Recipe, require_bool
from costguard.values.checks import Check, choose_from, describe_value, require, require_one_of, require_whole_number

SAME, NONE, HEAD = "same", "none", "head"
GENERATION_BATCH = 32
"""Sequences written at once where nobody says: what keeps an 80 GB GPU busy beside 7B models. Assumed."""
FROZEN_QUANTS = ("none", "nf4", "int8", "int4")

Table = Mapping[str, object]
FindArchitecture = Callable[[str], Architecture]
AssumedFields = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmDefaults:
    """Default values of one algorithm for keys that are not stated.

    `sequences`: sequences of one example; 2 for a comparison.

    InstructGPT (arXiv 2203.02155) trains on each batch of completions once, as DeepSpeed-Chat and OpenRLHF do. GRPO (arXiv
    2402.03300) has no value model, and no reward model where answers can be checked. TRL's group is 8.
    """

    generates: bool
    sequences: int = 1
    reward_model: str = NONE
    value_model: str = NONE
    completions: int = 1


ALGORITHM_DEFAULTS = {
    "dpo": AlgorithmDefaults(generates=False, sequences=2),
    "ppo": AlgorithmDefaults(generates=True, reward_model=SAME, value_model=SAME),
    "grpo": AlgorithmDefaults(generates=True, completions=8),
}


def _check_model(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"must be a name, not {describe_value(value)}", field=field, hint='write "same" or "none"')
    return value


_SIZE = partial(require_whole_number, most=10_000_000)
PREFERENCE_CHECKS: Mapping[str, Check] = {
    "algorithm": choose_from(ALGORITHM_DEFAULTS),
    "reference": require_bool,
    "reward_model": _check_model,
    "value_model": _check_model,
    "completions": _SIZE,
    "generation_batch": _SIZE,
    "rollout_tp": _SIZE,
    "prompt_len": _SIZE,
    "completion_len": _SIZE,
    "updates": _SIZE,
    "frozen_quant": choose_from(FROZEN_QUANTS),
}
"""The keys of the table, which are checked before it is read."""
ONLY_IF_GENERATED = ("reward_model", "value_model", "completions", "generation_batch", "rollout_tp", "updates")


@dataclass(slots=True)
class _PreferenceTable:
    """Reader of the table: a missing key takes its default, which is added to `assumed`."""

    table: Table
    assumed: AssumedFields

    def read_value(self, key: str, usual: object) -> object:
        if key not in self.table:
            self.assumed.append((f"preference.{key}", str(usual).lower()))
        return self.table.get(key, usual)

    def read_size(self, key: str, usual: int) -> int:
        return require_whole_number(self.read_value(key, usual), f"preference.{key}", most=10_000_000)


def read_preference(
    table: Table, architecture: Architecture, recipe: Recipe, assumed: AssumedFields, find: FindArchitecture
) -> PreferenceTraining:
    """Return the preference training that `[preference]` adds to a policy of `architecture`.

    `find`: returns the shape of a shipped model by name.
    """
    algorithm = require_one_of(table.get("algorithm"), ALGORITHM_DEFAULTS, "preference.algorithm")
    usual, reader = ALGORITHM_DEFAULTS[algorithm], _PreferenceTable(table, assumed)
    _check_suited(table, algorithm, usual, recipe)
    prompt, completion = _read_lengths(reader, recipe.seq_len, usual)
    completions = reader.read_size("completions", usual.completions) if usual.generates else 1
    batch = reader.read_size("generation_batch", max(GENERATION_BATCH, completions)) if usual.generates else 0
    return PreferenceTraining(
        algorithm=algorithm,
        companions=tuple(_read_companions(reader, usual, architecture, recipe, find)),
        prompt_len=prompt,
        completion_len=completion,
        sequences=usual.sequences,
        completions=completions,
        generation_batch=batch,
        rollout_tp=reader.read_size("rollout_tp", 0) if "rollout_tp" in table else 0,
        updates=reader.read_size("updates", 1) if usual.generates else 1,
    )


def _check_suited(table: Table, algorithm: str, usual: AlgorithmDefaults, recipe: Recipe) -> None:
    require(
        recipe.method in ("full", "lora", "qlora"),
        "preference",
        f"trains a policy, which method '{recipe.method}' does not",
        "write method = 'full', 'lora' or 'qlora'",
    )
    if not usual.generates:
        for key in ONLY_IF_GENERATED:
            require(key not in table, f"preference.{key}", f"has no effect for {algorithm}, which generates nothing", "drop it")


def _read_lengths(reader: _PreferenceTable, seq_len: int, usual: AlgorithmDefaults) -> tuple[int, int]:
    """Return the tokens of the prompt and of the completion, which add up to `seq_len`.

    If only one is stated, the other is the rest of `seq_len`; if none is stated, each is half of it.
    """
    table = reader.table
    if not usual.generates and not {"prompt_len", "completion_len"} & set(table):
        return seq_len // 2, seq_len - seq_len // 2  # where nothing is generated only the sum counts
    if "prompt_len" not in table and "completion_len" in table:
        completion = reader.read_size("completion_len", 0)
        prompt = seq_len - completion
    else:
        prompt = reader.read_size("prompt_len", seq_len // 2)
        completion = require_whole_number(table.get("completion_len", seq_len - prompt), "preference.completion_len", least=0)
    require(
        prompt > 0 and completion > 0 and prompt + completion == seq_len,
        "preference.prompt_len",
        f"{prompt} and completion_len {completion} do not make seq_len ({seq_len})",
        "leave seq_len out, or one of the two lengths",
    )
    return prompt, completion


def _read_companions(
    reader: _PreferenceTable, usual: AlgorithmDefaults, architecture: Architecture, recipe: Recipe, find: FindArchitecture
) -> tuple[Companion, ...]:
    """Return the reference, reward and value models that the table asks for."""
    quant = require_one_of(reader.table.get("frozen_quant", recipe.quant), FROZEN_QUANTS, "preference.frozen_quant")
    reference = reader.read_value("reference", usual=True)
    reward = str(reader.read_value("reward_model", usual.reward_model)) if usual.generates else NONE
    value = str(reader.read_value("value_model", usual.value_model)) if usual.generates else NONE
    require(reward != HEAD, "preference.reward_model", "'head' is frozen and cannot be trained", 'write "same" or "none"')
    companions = []
    if reference:
        companions.append(Companion(role="reference", architecture=architecture, quant=quant, copy=True))
    if reward != NONE:
        shape = build_scoring_model(architecture if reward == SAME else find(reward))
        companions.append(Companion(role="reward", architecture=shape, quant=quant))
    if value not in (NONE, HEAD):
        shape = build_scoring_model(architecture if value == SAME else find(value))
        companions.append(Companion(role="value", architecture=shape, trained=True))
    return tuple(companions)


SCORE_NUMBERS = 1
"""Outputs of the head of a reward or value model: one number a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """One model besides the policy.

    `quant`: quantisation of its weights if it is frozen; a trained one uses the policy's. `copy`: it equals the policy before
    training, so it needs no weights of its own if only adapters are trained.
    """

    role: str
    architecture: Architecture
    trained: bool = False
    quant: str = "none"
    copy: bool = False

    def is_shared_with(self, policy: Recipe) -> bool:
        """Return whether it is the policy with its adapters off: it computes, but needs no memory for weights."""
        return self.copy and policy.adapters

    def build_recipe(self, policy: Recipe) -> Recipe:
        """Return the companion's recipe; frozen weights are held in 16 bits, or in fp32 if the policy's precision is fp32."""
        if self.trained:
            return policy
        precision = "bf16" if policy.precision == "fp8" else policy.precision
        return replace(policy, method="inference", quant=self.quant, precision=precision, gradient_accumulation=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceTraining:
    """The companions of a policy, and the passes that each example needs.

    - `sequences`: sequences of one example in the same pass (2: a chosen and a rejected one).
    - `generation_batch`: sequences that each copy of the policy generates at once; 0 if it generates none.
    - `rollout_tp`: GPUs over which an engine divides its own copy of the weights; 0: the policy itself generates.
    - `completions`: completions for each prompt. `updates`: training passes over each batch.
    - `algorithm`: the common name of the method, for display only.
    """

    algorithm: str
    companions: tuple[Companion, ...]
    prompt_len: int
    completion_len: int
    sequences: int = 1
    completions: int = 1
    generation_batch: int = 0
    rollout_tp: int = 0
    updates: int = 1

    @property
    def generates(self) -> bool:
        """Return whether the policy generates its own training data."""
        return self.generation_batch > 0

    def split_generation(self, parallel: Parallelism) -> Parallelism:
        """Return how the model that generates is divided: as its engine is, else as the policy.

        verl's engines divide layers and refuse pipeline stages (workers/config/rollout.py, commit 067b75a, 2025).
        """
        if self.rollout_tp:
            return Parallelism(tp=self.rollout_tp)
        return Parallelism(tp=parallel.tp, pp=parallel.pp, ep=parallel.ep)

    @property
    def example_tokens(self) -> int:
        """Return the tokens of one prompt of the data set with all its completions."""
        return self.sequences * self.completions * (self.prompt_len + self.completion_len)

    def list_with_weights(self, policy: Recipe) -> tuple[Companion, ...]:
        """Return the companions that hold weights of their own."""
        return tuple(c for c in self.companions if not c.is_shared_with(policy))


def build_scoring_model(architecture: Architecture) -> Architecture:
    """Return `architecture` as a reward or value model: its head outputs one number per token instead of a vocabulary."""
    return replace(
        architecture,
        has_head=False,
        tied_embeddings=False,
        stated_params=None if architecture.stated_params is None else architecture.stated_params - architecture.head_parameters,
        extras=(*architecture.extras, ("score", SCORE_NUMBERS * architecture.hidden)),
    )
