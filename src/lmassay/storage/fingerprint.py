"""sha256 of files, remembered while a file's size and time stay the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from lmassay.storage.cache import cache_folder


def file_sha256(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remembered_sha256(path: Path) -> str:
    """`file_sha256`, read from the cache while path, size and modification time are unchanged."""
    stat = path.stat()
    name = hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    note = cache_folder() / "fingerprints" / f"{name}.json"
    stamp = [stat.st_size, stat.st_mtime_ns]
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(note.read_text())
        if kept["stamp"] == stamp:
            return str(kept["sha256"])
    digest = file_sha256(path)
    # A read-only cache only costs the time of hashing again.
    with suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        temporary = note.with_suffix(f".{hashlib.sha256(digest.encode()).hexdigest()[:8]}.tmp")
        temporary.write_text(json.dumps({"stamp": stamp, "sha256": digest}))
        temporary.replace(note)
    return digest


def combined(parts: Iterable[tuple[str, str]]) -> str:
    """One digest over (name, digest) pairs, in order of name."""
    return hashlib.sha256(json.dumps(sorted(parts)).encode()).hexdigest()
