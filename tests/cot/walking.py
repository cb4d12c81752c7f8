"""Walk over everything that can be reached from an object, and read what it says."""

from __future__ import annotations

import gc
import mmap

import numpy as np


def reachable(roots):
    """Every object that can be reached from these, this test's own frames and modules left out."""
    seen, left = {}, list(roots)
    while left:
        item = left.pop()
        if id(item) in seen or isinstance(item, type) or type(item).__name__ in ("module", "function", "frame"):
            continue
        seen[id(item)] = item
        left.extend(gc.get_referents(item))
        slots = [s for c in type(item).__mro__ for s in getattr(c, "__slots__", ())]
        left.extend(getattr(item, s) for s in slots if hasattr(item, s))
        left.extend(vars(item).values() if hasattr(item, "__dict__") else ())
    return seen.values()


def said_by(item):
    """What an object says, columns of text included."""
    if isinstance(item, str):
        return item
    if isinstance(item, bytes | bytearray | memoryview | mmap.mmap):
        # A file mapped into memory is all that it holds.
        return (
            str(item[:], "utf-8", "replace")
            if not isinstance(item, memoryview)
            else str(bytes(item), "utf-8", "replace")
        )
    if type(item).__module__.startswith("polars"):
        return str(item.to_list()) if hasattr(item, "to_list") else str(item)
    if isinstance(item, np.ndarray):
        return str(item.tolist())
    return ""
