"""Reading a written report back without the program: its markup, and its packed data."""

from __future__ import annotations

import base64
import json
import re
import zlib
from html.parser import HTMLParser

import numpy as np


class Page(HTMLParser):
    """Every element with its attributes, and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._raw = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._raw = tag if tag in ("script", "style") else self._raw

    def handle_endtag(self, tag):
        self._raw = "" if tag == self._raw else self._raw

    def handle_data(self, data):
        if not self._raw:
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    def ids(self):
        return [a["id"] for _, a in self.elements if "id" in a]


def packed_parts(text):
    """Part id -> (header, arrays) as the page's script would unpack them."""
    found = {}
    for part, letters in re.findall(r'<script type="text/plain" data-for="([^"]+)">([^<]*)</script>', text):
        found[part] = unpacked(letters)
    return found


def unpacked(letters):
    whole = zlib.decompress(base64.b64decode(letters), -zlib.MAX_WBITS)
    size = int.from_bytes(whole[:4], "little")
    header = json.loads(whole[4 : 4 + size])
    arrays = {}
    for name, a in header["arrays"].items():
        count = int(np.prod(a["shape"]))
        raw = np.frombuffer(whole[4 + size :], "<i2" if a["kind"] == "i16" else np.uint8, count, a["at"])
        missing = -32768 if a["kind"] == "i16" else 255
        values = raw.astype(np.float64) * a["scale"]
        values[raw == missing] = np.nan
        arrays[name] = values.reshape(a["shape"])
    return header, arrays
