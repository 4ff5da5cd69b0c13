"""The kinds of training and serving runs whose memory somebody measured and published, with a GPU that they ran on.

Written by `python scripts/fit_memory_interval.py --write`; do not edit. One line a kind: the fields of `RunKind`, then the GPU.
"""

MEASURED_RUNS = """
images full fp32 hf usual one A100-80GB-SXM
images full mixed hf usual copies A100-80GB-SXM
images full mixed hf usual one A100-80GB-SXM
images full mixed hf usual sharded A100-80GB-SXM
images lora 16-bit hf usual one A100-80GB-SXM
images lora fp32 hf usual one A100-80GB-SXM
images qlora 16-bit hf usual one RTX-A6000
text full 16-bit halo long one B300
text full 16-bit halo long sharded B300
text full 16-bit halo usual one B300
text full 16-bit halo usual sharded B300
text full 16-bit hf short one L40S
text full 16-bit hf usual one A100-80GB-SXM
text full 16-bit hf usual sharded A100-80GB-SXM
text full 16-bit litgpt short one A10G
text full 16-bit litgpt short sharded A10G
text full 16-bit torchtune usual one A100-80GB-SXM
text full fp32 hf short one A100-80GB-SXM
text full mixed deepspeed long sharded H20-96GB
text full mixed deepspeed short sharded A100-80GB-SXM
text full mixed deepspeed usual one A100-80GB-SXM
text full mixed deepspeed usual sharded A100-80GB-SXM
text full mixed hf long offload H200-SXM
text full mixed hf short one V100-16GB
text full mixed megatron usual model A100-80GB-SXM
text full mixed megatron usual offload A100-80GB-SXM
text full mixed torchtitan usual model H100-SXM-96GB-500W
text full mixed torchtitan usual sharded H100-SXM
text inference 16-bit litgpt short one A100-40GB-SXM
text inference fp32 litgpt short one A100-40GB-SXM
text lora 16-bit deepspeed usual sharded A100-80GB-SXM
text lora 16-bit halo long one B300
text lora 16-bit hf short one A100-80GB-SXM
text lora 16-bit hf short sharded RTX-3090
text lora 16-bit hf usual copies RTX-3090
text lora 16-bit hf usual offload RTX-4090
text lora 16-bit hf usual one A100-80GB-SXM
text lora 16-bit hf usual sharded A100-80GB-SXM
text lora 16-bit litgpt short one A10G
text lora 16-bit litgpt usual one A100-40GB-SXM
text lora 16-bit litgpt usual sharded A100-40GB-SXM
text lora fp32 hf short offload A100-80GB-SXM
text lora fp32 hf short one A100-80GB-SXM
text qlora 16-bit halo long one B300
text qlora 16-bit hf usual offload RTX-3090
text qlora 16-bit hf usual one A100-80GB-SXM
text qlora 16-bit hf usual sharded A100-80GB-SXM
text qlora 16-bit litgpt short one A10G
text qlora 16-bit litgpt usual one A100-40GB-SXM
text qlora 16-bit torchtune usual sharded A100-80GB-SXM
"""
