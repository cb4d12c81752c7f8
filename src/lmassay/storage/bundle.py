"""A run in one file, with its hashes, that another machine can verify."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lmassay.errors import FINDING, LmassayError
from lmassay.storage.atomic import write_with
from lmassay.storage.fingerprint import file_sha256
from lmassay.storage.rescore import Rescored
from lmassay.storage.runs import (
    MALFORMED,
    RUN,
    SCORES,
    TABLES,
    finished_record,
    first_difference,
    read_scores,
    tables_of,
)

MANIFEST = "manifest.json"
#: A bundle larger than this unpacked is refused, so that a small file cannot fill a disk.
LARGEST = 8 << 30


def _files(run: Path) -> tuple[str, ...]:
    return (RUN, SCORES, *tables_of(run, finished_record(run)))


def content_hash(run: Path) -> str:
    """sha256 over the digests of scores and tables: what a citation names. Times and machine do not enter."""
    digests = {name: file_sha256(run / name) for name in _files(run) if name != RUN}
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()


def write_bundle(run: Path, out: Path) -> str:
    """Pack a finished run; the same run gives the same bytes. Returns the bundle's sha256."""
    read_scores(run)
    files = _files(run)
    digests = {name: file_sha256(run / name) for name in files}
    manifest = json.dumps({"files": digests, "content_sha256": content_hash(run)}, indent=1).encode()

    def write(path: Path) -> None:
        with (
            path.open("wb") as raw,
            gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as archive,
        ):
            for name in (MANIFEST, *files):
                data = manifest if name == MANIFEST else (run / name).read_bytes()
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(data), 0o644
                archive.addfile(member, io.BytesIO(data))

    write_with(out, write)
    return file_sha256(out)


def verify_bundle(path: Path, rescored_of: Callable[[str], Rescored]) -> str:
    """Check every hash and compute every score again; returns the content hash.

    Parameters
    ----------
    rescored_of : callable
        How the scores of a suite's runs are computed again, by the suite's name.

    Raises
    ------
    LmassayError
        ``bad-run-folder`` (exit status 4) naming the first thing that does not hold.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _unpack(path, folder)
        try:
            manifest = json.loads((folder / MANIFEST).read_text())
            digests = dict(manifest["files"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _broken(path, f"its manifest: {error}") from error
        for file in digests.keys() | {RUN, SCORES}:
            if not (folder / file).is_file() or digests.get(file) != file_sha256(folder / file):
                raise _broken(path, f"{file} is not what the manifest says")
        try:
            hash_holds = manifest.get("content_sha256") == content_hash(folder)
            scores = read_scores(folder, as_written=False) if hash_holds else {}
            difference = first_difference(scores, _rescored(folder, rescored_of)) if hash_holds else None
        except LmassayError as error:
            raise _broken(path, error.what.removeprefix(f"{folder}: ")) from error
        except MALFORMED as error:
            # Whoever packed it can have written anything into the record.
            raise _broken(path, f"its record is malformed: {error}") from error
        if not hash_holds:
            raise _broken(path, "its content hash is wrong")
        if difference is not None:
            raise _broken(path, f"{difference[0]} comes out differently from its tables")
        return str(manifest["content_sha256"])


def _rescored(folder: Path, rescored_of: Callable[[str], Rescored]) -> dict[str, Any]:
    record = finished_record(folder)
    return rescored_of(record["identity"]["suite"])(folder, record)


def _unpack(path: Path, folder: Path) -> None:
    """Only plain files of the known names are taken out, so a bundle can write nowhere else."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            total = 0
            for member in archive:
                total += member.size
                if member.name not in (MANIFEST, RUN, SCORES, *TABLES) or not member.isfile() or total > LARGEST:
                    raise _broken(path, f"it holds {member.name[:40]!r}")
                source = archive.extractfile(member)
                assert source is not None
                (folder / member.name).write_bytes(source.read())
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise _broken(path, str(error)) from error


def _broken(path: Path, why: str) -> LmassayError:
    return LmassayError(
        "bad-run-folder", f"{path} does not verify: {why}", "ask for the bundle again", exit_status=FINDING
    )
