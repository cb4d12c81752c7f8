"""An Altair chart as a file, drawn without a browser or a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lmassay.reports.charts import PIXELS_PER_POINT, check_suffix
from lmassay.storage.atomic import write_bytes

__all__ = ["check_suffix", "save_chart"]


def save_chart(chart: Any, path: Path) -> None:
    """Write an SVG or PNG.

    Raises
    ------
    LmassayError
        ``bad-request`` for another suffix, ``disk-full``.
    """
    check_suffix(path)
    import vl_convert

    spec = chart.configure_view(stroke=None).to_json()
    if path.suffix.lower() == ".svg":
        write_bytes(path, vl_convert.vegalite_to_svg(spec).encode())
    else:
        write_bytes(path, vl_convert.vegalite_to_png(spec, scale=PIXELS_PER_POINT))
