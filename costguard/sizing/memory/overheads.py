"""Measured or fitted constants for the memory of PyTorch, CUDA and sharding libraries besides the model's tensors.

This is the only module with fitted numbers; each states its source and date.
"""

from __future__ import annotations

MIB = 2**20

CONTEXT_BYTES = 600 * MIB
"""CUDA context with PyTorch's kernels loaded lazily (CUDA 11.7 and newer): 0.4-0.6 GiB on A100 and H100. It was 1343 MiB
with torch 1.x on a V100 (Hugging Face's performance guide). SIZING.md section 3.10, 2026-11."""

CONTEXT_BYTES_EAGER = 1343 * MIB
"""The same with all kernels loaded at start, as before CUDA 11.7: that measurement."""

NCCL_BYTES = 400 * MIB
"""NCCL's buffers where more than one GPU works: 0.3-1 GB (SIZING.md section 3.10, 2026-11)."""

SLACK_SHARE = 0.1
"""What the allocator holds and cannot hand out, as a share of what comes and goes (activations, logits, buffers, gradients
that do not wait): weights and optimizer do not fragment. 2-18% in PEFT's eight published maxima. Each share here is about
the 60th percentile of its rows: a little too much is a little dearer, a little too little is a crash. 2026-11."""

SLACK_LEAST = 0.05
"""The least slack a job is planned with, as a share of its whole peak: what is published is 3-12%, and lengths vary."""

SLACK_MOST = 0.12
"""The most it is planned with: before it fails, PyTorch's allocator frees what it only cached (CUDACachingAllocator.cpp)."""

SLACK_SHARE_GATHERED = 0.15
"""The same where weights are gathered and freed layer by layer (ZeRO-3, FSDP2): 3-26% in torchtitan's, ml-engineering's
and PEFT's rows."""

SLACK_SHARE_FSDP1 = 0.33
"""The same under FSDP1, whose streams hold what they gathered until later (record_stream): 16-40% in fsdp_qlora's and
PEFT's rows."""

SLACK_SHARE_TORCH1 = 0.3
"""Without gathering, under torch 1.x: 12-46% in Hugging Face's BERT rows, whose nvidia-smi sees the most ever cached."""

BUCKET_ELEMENTS = 500_000_000
"""DeepSpeed's default reduce_bucket_size and allgather_bucket_size (docs, ZeRO section, 2026-11)."""

SUB_GROUP_ELEMENTS = 1_000_000_000
"""DeepSpeed's default sub_group_size: parameters that ZeRO-3's step updates at a time (docs, ZeRO section, 2026-11)."""

GATHERED_LAYERS = 2
"""Layers whose whole weights a rank holds at once: the one at work, the one fetched ahead (FSDP2, DeepSpeed)."""

GATHERED_LAYERS_FSDP1 = 3
"""The same under FSDP1, whose limit_all_gathers lets two fetches be in flight (_FreeEventQueue)."""

LIVE_ELEMENTS = 1_000_000_000
"""DeepSpeed's default stage3_max_live_parameters: gathered weights stay until there are so many (docs, 2026-11)."""

LOSS_CHUNKS = 8
"""Chunks of torchtune's cross-entropy (CEWithChunkedOutputLoss). Liger's has vocabulary / hidden of them
(ops/fused_linear_cross_entropy.py)."""

LOAD_COPIES = 2
"""16-bit copies of a matrix alive while bitsandbytes quantises it on the GPU: as loaded, and contiguous. It explains
litgpt's seven nf4 inference peaks to 2%."""

PREFILL_TOKENS = 8192
"""Prompt tokens a server takes in at once: vLLM's default max_num_batched_tokens for online serving (V1 engine, 2026-11)."""
