"""Download of the published release: one archive of one commit, where the network allows."""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from pathlib import Path

from lmassay.errors import FAILED_PART_WAY, LmassayError
from lmassay.storage.atomic import write_errors

#: The authors' repository (MIT licence); an archive of a commit is made by the host on request.
ARCHIVE = "https://codeload.github.com/Centrattic/cot-proxy-tasks/tar.gz/{commit}"
#: The commits the layouts are described by.
COMMITS = {"head": "4482324b5e4a6277fa3bd544785cbd9875e11694", "post": "58665364f"}
TIMEOUT = 30.0


def is_commit(source: str) -> bool:
    """Whether a source is ``published@COMMIT``."""
    return source.startswith("published@")


def download(source: str, into: Path, *, url: str = ARCHIVE) -> Path:
    """The archive of ``published@COMMIT``, in the folder `into`; ``head`` and ``post`` name known commits.

    Raises
    ------
    LmassayError
        ``bad-request`` for what is no commit, ``network-unavailable``.
    """
    commit = source.removeprefix("published@")
    commit = COMMITS.get(commit, commit)
    if not re.fullmatch(r"[0-9a-f]{7,40}", commit):
        raise LmassayError(
            "bad-request", f"{source!r} names no commit", "published@ is followed by 7 to 40 hexadecimal digits"
        )
    target = into / f"{commit}.tar.gz"
    address = url.format(commit=commit)
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as answer, target.open("wb") as file:
            while block := answer.read(1 << 20):
                with write_errors(target):
                    file.write(block)
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise LmassayError(
            "network-unavailable",
            f"could not download the release from {address.split('/')[2]}: {getattr(error, 'reason', error)}",
            "fetch the repository elsewhere and give `lmassay cot import` its folder or archive",
            exit_status=FAILED_PART_WAY,
        ) from error
    return target
