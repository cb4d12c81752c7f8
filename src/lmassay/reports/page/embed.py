"""Data held once in the page: a header in JSON and arrays behind it, deflated, in letters no markup can be made of.

The page's script unpacks it (`assets/data.js`): four bytes say how long the header is, little-endian; the arrays follow
the header, each as the header's ``arrays`` says.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

#: What stands for undefined in an array of 16-bit integers.
MISSING = -32768
_LARGEST = 32767


def packed(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> str:
    """Both as one line of base64."""
    described, pieces, at = {}, [], 0
    for name, array in (arrays or {}).items():
        kind, scale, data = _coded(array)
        described[name] = {"kind": kind, "scale": scale, "shape": list(array.shape), "at": at}
        pieces.append(data)
        at += len(data)
    head = json.dumps({**header, "arrays": described}, ensure_ascii=True, allow_nan=False).encode()
    whole = len(head).to_bytes(4, "little") + head + b"".join(pieces)
    squeezed = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(squeezed.compress(whole) + squeezed.flush()).decode("ascii")


def _coded(array: NDArray[Any]) -> tuple[str, float, bytes]:
    """Bytes as they are; floats as 16-bit integers, to one part in 32,767 of the largest."""
    if array.dtype == np.uint8:
        return "u8", 1.0, np.ascontiguousarray(array).tobytes()
    values = np.asarray(array, np.float64)
    known = np.isfinite(values)
    largest = float(np.abs(values[known]).max()) if known.any() else 0.0
    scale = largest / _LARGEST if largest > 0 else 1.0
    coded = np.full(values.shape, MISSING, "<i2")
    coded[known] = np.rint(values[known] / scale).astype("<i2")
    return "i16", scale, coded.tobytes()


def columns_of(frame: pl.DataFrame) -> dict[str, Any]:
    """A table by columns, as JSON can hold it: no NaN, whatever is no number or text as text."""
    import polars as pl

    columns = []
    for name in frame.columns:
        series = frame[name]
        if series.dtype.is_float():
            values: list[Any] = [
                None if v is None or not np.isfinite(v) else float(f"{v:.7g}") for v in series.to_list()
            ]
        elif series.dtype.is_integer() or series.dtype == pl.Boolean:
            values = series.to_list()
        else:
            values = [None if v is None else _text(v) for v in series.to_list()]
        columns.append(values)
    decimal = [dtype.is_float() for dtype in frame.dtypes]
    return {"names": list(frame.columns), "columns": columns, "decimal": decimal, "n": frame.height}


def _text(value: Any) -> str:
    """As text that JSON and a browser can hold: lone surrogates, which no encoding can, are named."""
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
