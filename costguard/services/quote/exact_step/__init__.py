"""Run one training step on tensors without data: exact memory on a machine without a GPU.

Needs the extra `exact` (torch, transformers, peft); imported only for `size --exact`. Decision 0009 states what it measures and
what it leaves out.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec

from costguard.errors import InputError
from costguard.sizing.exact_memory import INSTALL_HINT, ExactMemory
from costguard.sizing.job import Job

__all__ = ["PACKAGES", "FakeTensorSizer"]

PACKAGES = ("torch", "transformers", "peft")


class FakeTensorSizer:
    """Runs jobs on PyTorch's fake tensors; implements the port `ExactSizer`."""

    def measure_step(self, config: Mapping[str, object], job: Job) -> ExactMemory:
        """Return the memory of `job` on the model that `config` (a parsed config.json) describes."""
        missing = [name for name in PACKAGES if find_spec(name) is None]
        if missing:
            raise InputError(f"needs packages that are not installed: {', '.join(missing)}", field="--exact", hint=INSTALL_HINT)
        with _silence_packages():
            from costguard.services.quote.exact_step.training_step import measure_second_step

            return measure_second_step(config, job)


@contextmanager
def _silence_packages() -> Iterator[None]:
    """Suppress log messages and warnings of these packages while they are imported and used."""
    old_level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(old_level)
