"""The store of imported data: typed Parquet tables with their long texts beside them, under the user's cache.

``cot/manifest.json`` names every table's folder. A folder holds ``rows.parquet`` (all fields but long texts; for those,
in which file and where they are), the texts as UTF-8 (``00000.<field>.text`` …), and ``table.json``: digests, and what
was kept out. Long texts are not in the Parquet file because opening would then decompress what few methods read at
once; mapped, they are there at once and take no memory of their own.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from lmassay.cot.schema import Field
from lmassay.errors import FAILED_PART_WAY, LmassayError
from lmassay.examples import Texts
from lmassay.storage.atomic import write_bytes, write_errors
from lmassay.storage.cache import cache_folder
from lmassay.storage.fingerprint import file_sha256

if TYPE_CHECKING:
    import polars as pl

#: Of the manifest and of every table; another version is imported again.
VERSION = 1
AGAIN = "import the data again with `lmassay cot import SOURCE`"


def store_folder() -> Path:
    """Where the store is."""
    return cache_folder() / "cot"


def broken(what: str) -> LmassayError:
    """The error of a damaged store."""
    return LmassayError("cot-data-broken", what, AGAIN, exit_status=FAILED_PART_WAY)


@dataclass(frozen=True, slots=True)
class StoredTable:
    """One table of the store.

    Attributes
    ----------
    id : str
        Such as ``head/1/train/records``.
    folder : Path
    rows : int
    digest : str
        sha256 of the content, whatever it was imported from.
    about : dict
        What ``table.json`` says.
    """

    id: str
    folder: Path
    rows: int
    digest: str
    about: Mapping[str, Any]

    def frame(self) -> pl.DataFrame:
        """(rows, n_fields) every field but long texts, with ``_file``, ``_key``, ``_group`` and where texts are.

        Raises
        ------
        LmassayError
            ``cot-data-broken``.
        """
        import polars as pl

        path = self.folder / "rows.parquet"
        try:
            if path.stat().st_size != self.about["rows_bytes"]:
                raise broken(f"{path} was cut short or altered")
            found = pl.read_parquet(path)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise broken(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
        if found.height != self.rows:
            raise broken(f"{path} has {found.height} rows instead of {self.rows}")
        return found

    def texts(self, field: str, frame: pl.DataFrame) -> Texts:
        """(rows,) the texts of one field, mapped.

        Parameters
        ----------
        frame : polars.DataFrame
            What `frame` gave.

        Raises
        ------
        LmassayError
            ``cot-data-broken``.
        """
        return Texts(
            [_mapped(self.folder / f"{n:05d}.{field}.text", part["texts"][field][0]) for n, part in self._parts()],
            frame["_part"].to_numpy().astype(np.int64),
            frame[f"{field}@start"].fill_null(0).to_numpy(),
            frame[f"{field}@bytes"].fill_null(-1).to_numpy(),
        )

    def _parts(self) -> list[tuple[int, Any]]:
        return list(enumerate(self.about["parts"]))

    def faults(self) -> list[str]:
        """What a full check against every digest finds: names of files that are missing or altered."""
        wanted = {"rows.parquet": self.about["rows_sha256"]}
        for number, part in self._parts():
            wanted |= {f"{number:05d}.{field}.text": sha256 for field, (_, sha256) in part["texts"].items()}
        return [
            name
            for name, sha256 in wanted.items()
            if not (self.folder / name).is_file() or file_sha256(self.folder / name) != sha256
        ]


def _mapped(path: Path, size: int) -> Any:
    try:
        with path.open("rb") as file:
            if path.stat().st_size != size:
                raise broken(f"{path} was cut short or altered")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except OSError as error:
        raise broken(f"{path} cannot be read: {error.strerror}") from error


def read_manifest() -> dict[str, StoredTable]:
    """Every table of the store by id; empty where nothing has been imported.

    Raises
    ------
    LmassayError
        ``cot-data-broken``.
    """
    path = store_folder() / "manifest.json"
    if not path.exists():
        return {}
    try:
        content = orjson.loads(path.read_bytes())
        if content["version"] != VERSION:
            raise broken(f"the store was written in format {content['version']}, this is format {VERSION}")
        return {
            id_: StoredTable(id_, store_folder() / "tables" / entry["folder"], entry["rows"], entry["digest"], entry)
            for id_, entry in content["tables"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise broken(f"{path} cannot be read: {error}") from error


def write_manifest(tables: Mapping[str, StoredTable]) -> None:
    """Make these tables the store, and remove the folders of no table.

    Raises
    ------
    LmassayError
        ``disk-full``.
    """
    entries = {
        id_: {**table.about, "folder": table.folder.name, "rows": table.rows, "digest": table.digest}
        for id_, table in sorted(tables.items())
    }
    with write_errors(store_folder()):
        write_bytes(store_folder() / "manifest.json", orjson.dumps({"version": VERSION, "tables": entries}))
    named = {table.folder for table in tables.values()}
    for folder in (store_folder() / "tables").iterdir():
        if folder not in named:
            shutil.rmtree(folder, ignore_errors=True)


def assemble(
    out: Path, table: str, fields: Sequence[Field], n_parts: int, *, question: str, source: str
) -> StoredTable:
    """Make a table of the parts in `out`, which becomes its folder.

    Parameters
    ----------
    question : str
        The field whose value names the group.
    source : str
        What the table was imported from, for people.

    Raises
    ------
    LmassayError
        ``disk-full``.
    """
    import polars as pl

    columns: dict[str, list[Any]] = {}
    parts, part_of, keys = [], [], []
    digest = hashlib.sha256(table.encode())
    for number in range(n_parts):
        first, _, encoded = (out / f"{number:05d}.json").read_bytes().partition(b"\n")
        part = orjson.loads(first)
        for name, values in orjson.loads(encoded).items():
            columns.setdefault(name, []).extend(values)
        keys += part.pop("keys")
        part_of += [number] * part["rows"]
        digest.update(bytes.fromhex(part["digest"]))
        parts.append(part)
    types = _types(fields)
    frame = pl.DataFrame(
        {name: pl.Series(name, columns.get(name, []), dtype=dtype) for name, dtype in types.items()}
        | {"_part": pl.Series(part_of, dtype=pl.Int32), "_key": pl.Series(keys, dtype=pl.Int64)}
    )
    numbered = {q: group_number(table, q) for q in frame[question].unique().to_list()}
    frame = frame.with_columns(
        _group=pl.col(question).replace_strict(list(numbered), list(numbered.values()), return_dtype=pl.Int64)
    )
    rows = out / "rows.parquet"
    buffer = io.BytesIO()
    # Statistics of columns nobody filters by would only take time.
    frame.write_parquet(buffer, compression="zstd", compression_level=1, statistics=False)
    data = buffer.getvalue()
    with write_errors(rows):
        rows.write_bytes(data)
    about: dict[str, Any] = {
        "parts": parts,
        "rows_sha256": hashlib.sha256(data).hexdigest(),
        "rows_bytes": len(data),
        "source": source,
        "kept_out": [pair for part in parts for pair in part["kept_out"]],
    }
    write_bytes(out / "table.json", orjson.dumps(about))
    return StoredTable(table, out, frame.height, digest.hexdigest(), about)


def group_number(table: str, question: object) -> int:
    """An opaque number for a question, the same in all splits and layouts of a task."""
    number = table.split("/")[1]
    named = f"group\x1f{number}\x1f{question}".encode()
    return int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), "big") >> 1


def _types(fields: Sequence[Field]) -> dict[str, Any]:
    """Polars types of the columns parts hold."""
    import polars as pl

    labelled = pl.List(pl.Struct({"label": pl.String, "text": pl.String}))
    distribution = pl.List(pl.Struct({"key": pl.String, "value": pl.Float64}))
    summary = pl.Struct(
        {
            "sentence_idx": pl.Int64,
            "partial_cot_length": pl.Int64,
            "total_forces": pl.Int64,
            "valid_answers": pl.Int64,
            "answer_distribution": distribution,
            "answer_counts": distribution,
            "most_common": pl.String,
        }
    )
    of: dict[str, Any] = {
        "str": pl.String, "int": pl.Int64, "float": pl.Float64, "bool": pl.Boolean, "messages": labelled,
        "options": labelled, "strings": pl.List(pl.String), "ints": pl.List(pl.Int64), "distribution": distribution,
        "summaries": pl.List(summary),
    }  # fmt: skip
    types: dict[str, Any] = {}
    for field in fields:
        if field.is_text:
            types |= {f"{field.name}@start": pl.Int64, f"{field.name}@bytes": pl.Int64}
        else:
            types[field.name] = of[field.kind]
    return types | {"_file": pl.String}
