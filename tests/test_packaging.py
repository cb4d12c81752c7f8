"""The package as a stranger gets it: built from a source archive, installed into an environment of its own, and used there.

Its libraries are those of this environment, so nothing is downloaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.slow


def _done(*command, cwd=None):
    # What stands in PYTHONPATH would be found before the installed package.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _built(source, target, out):
    _done(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", out, cwd=source)
    (path,) = Path(out).glob("*.whl" if target == "wheel" else "*.tar.gz")
    return path


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return _built(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def unpacked(archive, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    (inner,) = folder.iterdir()
    return inner


@pytest.fixture(scope="module")
def wheel(unpacked, tmp_path_factory):
    """Built from the source archive, so that the archive holds all a wheel needs."""
    return _built(unpacked, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The bin folder of an environment that holds the wheel alone, and sees this one's libraries."""
    place = tmp_path_factory.mktemp("env") / "venv"
    _done(sys.executable, "-m", "venv", "--without-pip", place)
    python = place / "bin" / "python"
    _done(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel)
    site = Path(_done(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # Lines of a .pth file go behind the environment's own packages, and .pth files found there (ours is one) are not read.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin"


def test_a_source_archive_holds_what_tests_and_docs_need(unpacked):
    for name in ("pyproject.toml", "constraints.txt", "Makefile", "mkdocs.yml", "LICENSE", "tests/conftest.py",
                 "docs/hooks.py", "examples/both_suites.ipynb", "benchmarks/plain.py"):  # fmt: skip
        assert (unpacked / name).is_file(), name
    strays = {p.name for p in unpacked.rglob("*")} & {".venv", "__pycache__", "runs", "site", ".git"}
    assert not strays


def test_a_wheel_from_the_archive_is_the_checkouts(wheel):
    sources = {p for p in (ROOT / "src" / "lmassay").rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    with zipfile.ZipFile(wheel) as packed:
        held = {n for n in packed.namelist() if ".dist-info/" not in n}
        unpacked = sum(i.file_size for i in packed.infolist())
    assert held == {p.relative_to(ROOT / "src").as_posix() for p in sources}
    assert unpacked < 20e6  # bytes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--help",), "xray"),
        (("--version",), "lmassay"),
        (("demo", "--help"), "SmolLM2"),
        (("cot", "tasks"), "reasoning_termination"),
        (("models", "list"), "smollm2-135m"),
    ],
)
def test_a_command_runs_from_the_wheel_outside_the_checkout(arguments, said, installed, tmp_path):
    assert said in _done(installed / "lmassay", *arguments, cwd=tmp_path)


def test_the_data_of_the_package_is_read_from_the_wheel(installed, tmp_path):
    program = """
import importlib.resources, lmassay
from lmassay.storage.schema import schema
from lmassay.xray.batteries import load_battery
assert schema("scores") and schema("cot_scores")
assert len(load_battery("core50").tasks) == 50
assert importlib.resources.files("lmassay").joinpath("py.typed").is_file()
print(lmassay.__file__)
"""
    where = Path(_done(installed / "python", "-c", program, cwd=tmp_path).strip())
    assert installed.parent in where.parents
