"""Memory, FLOPs and speed of a job on given GPUs. Pure."""
