"""Multi-head latent attention (DeepSeek-V2): keys and values pass a narrow latent, which is all that a cache keeps."""

from __future__ import annotations

from dataclasses import dataclass

from costguard.values.checks import require_whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Keys and values pass `kv_rank`, queries `q_rank` (0: nothing)."""

    q_rank: int
    kv_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int

    def __post_init__(self) -> None:
        require_whole_number(self.q_rank, "q_rank", least=0)
        for name in ("kv_rank", "rope_dim", "nope_dim", "value_dim"):
            require_whole_number(getattr(self, name), name)
