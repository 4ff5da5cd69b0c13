"""Processes of their own for tests: forked by one server per test process, which has imported what they run.

Each is as real as one that starts from nothing: it has its own memory, files and locks, races with the others, and dies by
SIGKILL. Only that it imports costguard again is saved, which took most of a second of CPU each.
"""

from __future__ import annotations

import multiprocessing

BESIDE = multiprocessing.get_context("forkserver")
"""`BESIDE.Process(target=..., args=...)`: the target is a function of a module; its environment is that of the first start."""

BESIDE.set_forkserver_preload(
    ["tests.ledger.test_audit", "tests.ledger.test_bills", "tests.ledger.test_guard_races", "tests.ledger.test_upgrades"]
)
