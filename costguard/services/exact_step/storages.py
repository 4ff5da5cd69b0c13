"""Every storage from its birth to its death, in the sizes the CUDA caching allocator hands out."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ALLOCATION_GRAIN = 512
"""Bytes: the CUDA caching allocator rounds every request up to a multiple of it (c10/cuda, kMinBlockSize)."""


class StorageTracker(TorchDispatchMode):  # type: ignore[misc]  # torch is not installed where types are checked: its classes are Any
    """While it is entered, every tensor that an operator returns is followed. `now` and `peak` are bytes.

    torch keeps one Python object for a storage as long as the storage lives, so a weak reference dies when the memory does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.peak = 0
        self._alive: dict[int, weakref.ref[Any]] = {}

    def follow(self, tensors: Iterable[Tensor]) -> None:
        """Count the storages of `tensors` that are not counted yet; views share one."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if id(storage) not in self._alive:
                self._add_storage(storage)

    def take_peak(self) -> int:
        """The peak since it was last marked; from now on a new one is looked for."""
        peak, self.peak = self.peak, self.now
        return peak

    def _add_storage(self, storage: Any) -> None:  # noqa: ANN401 - a torch.UntypedStorage
        key, size = id(storage), -(-storage.nbytes() // ALLOCATION_GRAIN) * ALLOCATION_GRAIN

        def died(_: object) -> None:
            del self._alive[key]
            self.now -= size

        self._alive[key] = weakref.ref(storage, died)
        self.now += size
        self.peak = max(self.peak, self.now)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's own signature
        result = func(*args, **(kwargs or {}))
        self.follow(leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
        return result
