"""Which adapters the suite tries. One line for a new one."""

from __future__ import annotations

RIGS = {
    "toy": "tests.contract.toy",
    "aws": "tests.providers.aws.rig",
    "azure": "tests.providers.azure.rig",
    "coreweave": "tests.providers.coreweave.rig",
    "gcp": "tests.providers.gcp.rig",
    "runpod": "tests.providers.runpod.rig",
    "lambda": "tests.providers.lambda_.rig",
    "vast": "tests.providers.vast.rig",
    "scaleway": "tests.providers.scaleway.rig",
    "moto": "tests.providers.aws.moto_rig",
}
"""Adapter -> the module of its rig. The toy is the suite's own. Moto is AWS as others wrote it: slow, and for campaigns."""
