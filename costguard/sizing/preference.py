"""The job file's `[preference]` table: training on comparisons or rewards, with other models beside the policy.

    [preference]
    algorithm = "ppo"          # dpo | ppo | grpo: fills in what is not stated below
    reference = true           # a frozen copy of the policy, from which it must not stray
    reward_model = "same"      # same (the policy's shape) | none (a rule gives the reward) | a shipped name
    value_model = "same"       # same | none | head (on the policy) | a shipped name; it is trained as the policy is
    completions = 1            # for each prompt; GRPO's group
    generation_batch = 32      # sequences each copy writes at once
    prompt_len = 512           # with completion_len the sequence: seq_len follows
    completion_len = 512
    updates = 1                # training passes over each batch of completions
    frozen_quant = "none"      # none | nf4 | int8 | int4: of the frozen models

`tokens` are prompts and completions, each counted once; of DPO, chosen and rejected. `micro_batch` counts examples: of
DPO, pairs. What is not stated is assumed, and said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from costguard.sizing.architecture import Architecture
from costguard.sizing.companions import Companion, PreferenceTraining, build_scoring_model
from costguard.sizing.recipe import Recipe, require_bool
from costguard.values.checks import describe_value, require, require_known_keys, require_one_of, require_whole_number

SAME, NONE, HEAD = "same", "none", "head"
PREFERENCE_KEYS = (
    "algorithm",
    "reference",
    "reward_model",
    "value_model",
    "completions",
    "generation_batch",
    "prompt_len",
    "completion_len",
    "updates",
    "frozen_quant",
)
GENERATION_BATCH = 32
"""Sequences written at once where nobody says: what keeps an 80 GB GPU busy beside 7B models. Assumed."""
FROZEN_QUANTS = ("none", "nf4", "int8", "int4")

Table = Mapping[str, object]
FindArchitecture = Callable[[str], Architecture]
AssumedFields = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmDefaults:
    """What people mean by an algorithm's name where they say no more. `sequences`: of one example; 2 in a comparison.

    InstructGPT (arXiv 2203.02155) trains on each batch of completions once, as DeepSpeed-Chat and OpenRLHF do; GRPO
    (arXiv 2402.03300) has no value model, and where answers can be checked no reward model; TRL's group is 8.
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
ONLY_IF_GENERATED = ("reward_model", "value_model", "completions", "generation_batch", "updates")


@dataclass(slots=True)
class _PreferenceTable:
    """The table, read key by key; what is missing is taken as usual and noted in `assumed`."""

    table: Table
    assumed: AssumedFields

    def read_value(self, key: str, usual: object) -> object:
        if key not in self.table:
            self.assumed.append((f"preference.{key}", str(usual).lower()))
        return self.table.get(key, usual)

    def read_size(self, key: str, usual: int) -> int:
        return require_whole_number(self.read_value(key, usual), f"preference.{key}", most=10_000_000)

    def read_name(self, key: str, usual: str) -> str:
        value = self.read_value(key, usual)
        require(
            isinstance(value, str),
            f"preference.{key}",
            f"must be a name, not {describe_value(value)}",
            'write "same" or "none"',
        )
        return str(value)


def read_preference(
    table: Table, architecture: Architecture, recipe: Recipe, assumed: AssumedFields, find: FindArchitecture
) -> PreferenceTraining:
    """What `[preference]` puts beside a policy of `architecture`. `find`: the shape of a shipped model."""
    require_known_keys(table, PREFERENCE_KEYS, "preference")
    algorithm = require_one_of(table.get("algorithm"), ALGORITHM_DEFAULTS, "preference.algorithm")
    usual, stated = ALGORITHM_DEFAULTS[algorithm], _PreferenceTable(table, assumed)
    _check_suited(table, algorithm, usual, recipe)
    prompt, completion = _read_lengths(stated, recipe.seq_len, usual)
    completions = stated.read_size("completions", usual.completions) if usual.generates else 1
    batch = stated.read_size("generation_batch", max(GENERATION_BATCH, completions)) if usual.generates else 0
    return PreferenceTraining(
        algorithm=algorithm,
        companions=tuple(_read_companions(stated, usual, architecture, recipe, find)),
        prompt_len=prompt,
        completion_len=completion,
        sequences=usual.sequences,
        completions=completions,
        generation_batch=batch,
        updates=stated.read_size("updates", 1) if usual.generates else 1,
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
            require(
                key not in table, f"preference.{key}", f"has no meaning for {algorithm}, which generates nothing", "drop it"
            )


def _read_lengths(stated: _PreferenceTable, seq_len: int, usual: AlgorithmDefaults) -> tuple[int, int]:
    """Prompt and completion: what is stated, the other the rest of `seq_len`; half of it each where nothing is."""
    table = stated.table
    if not usual.generates and not {"prompt_len", "completion_len"} & set(table):
        return seq_len // 2, seq_len - seq_len // 2  # where nothing is generated only the sum counts
    if "prompt_len" not in table and "completion_len" in table:
        completion = stated.read_size("completion_len", 0)
        prompt = seq_len - completion
    else:
        prompt = stated.read_size("prompt_len", seq_len // 2)
        completion = require_whole_number(table.get("completion_len", seq_len - prompt), "preference.completion_len", least=0)
    require(
        prompt > 0 and completion > 0 and prompt + completion == seq_len,
        "preference.prompt_len",
        f"{prompt} and completion_len {completion} do not make seq_len ({seq_len})",
        "leave seq_len out, or one of the two lengths",
    )
    return prompt, completion


def _read_companions(
    stated: _PreferenceTable, usual: AlgorithmDefaults, architecture: Architecture, recipe: Recipe, find: FindArchitecture
) -> tuple[Companion, ...]:
    """Reference, reward model and value model, those of them there are."""
    quant = require_one_of(stated.table.get("frozen_quant", recipe.quant), FROZEN_QUANTS, "preference.frozen_quant")
    reference = stated.read_value("reference", usual=True)
    require_bool(reference, "preference.reference")
    reward = stated.read_name("reward_model", usual.reward_model) if usual.generates else NONE
    value = stated.read_name("value_model", usual.value_model) if usual.generates else NONE
    require(reward != HEAD, "preference.reward_model", "'head' is frozen with nothing to learn from", 'write "same" or "none"')
    beside = []
    if reference:
        beside.append(Companion(role="reference", architecture=architecture, quant=quant, copy=True))
    if reward != NONE:
        shape = build_scoring_model(architecture if reward == SAME else find(reward))
        beside.append(Companion(role="reward", architecture=shape, quant=quant))
    if value not in (NONE, HEAD):
        shape = build_scoring_model(architecture if value == SAME else find(value))
        beside.append(Companion(role="value", architecture=shape, trained=True))
    return tuple(beside)
