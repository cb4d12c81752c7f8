"""The package as others get it: what a wheel holds, what is pinned, and what must stand in no file."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: Places that exist on one machine only, and package registries: pip's own settings choose those.
PRIVATE = re.compile(
    r"(?<![\w.$~])/(?:work|root|home|Users)/\w|pypi\.org|pythonhosted|--(?:extra-)?index-url|find-links"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(out), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (path,) = out.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def _pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {canonicalize_name(r.name): r for r in map(Requirement, filter(None, lines))}


def test_a_wheel_holds_the_whole_package_and_nothing_else(wheel):
    packed = {n for n in wheel.namelist() if ".dist-info/" not in n}
    sources = {p for p in (ROOT / "src" / "lmassay").rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert packed == {p.relative_to(ROOT / "src").as_posix() for p in sources}
    assert "lmassay/py.typed" in packed


def test_a_wheel_states_its_licence_and_its_command(wheel):
    names = {n.partition(".dist-info/")[2]: n for n in wheel.namelist()}
    assert "licenses/LICENSE" in names
    assert "lmassay = lmassay.cli:main" in wheel.read(names["entry_points.txt"]).decode()


def test_every_requirement_is_pinned_within_its_range():
    pins = _pins()
    for line in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]):
        requirement = Requirement(line)
        (pin,) = pins[canonicalize_name(requirement.name)].specifier
        assert pin.operator == "=="
        assert requirement.specifier.contains(pin.version), line


def test_everything_an_install_brings_is_pinned():
    seen: set[str] = set()
    left = [Requirement("lmassay[dev]")]
    while left:
        wanted = left.pop()
        for line in requires(wanted.name) or []:
            requirement = Requirement(line)
            markers = [
                requirement.marker is None or requirement.marker.evaluate({"extra": e}) for e in ("", *wanted.extras)
            ]
            name = canonicalize_name(requirement.name)
            if any(markers) and name not in seen:
                seen.add(name)
                left.append(requirement)
    assert len(seen) > 40
    assert seen <= set(_pins())


def test_pins_resolve_on_any_machine():
    for name, pin in _pins().items():
        assert pin.url is None, name
        assert "+" not in str(pin.specifier), f"{name} is pinned to a build of one machine"


def test_version_is_one(wheel):
    from lmassay import __version__

    cff = (ROOT / "CITATION.cff").read_text()
    assert __version__ == PROJECT["version"]
    assert f"version: {__version__}\n" in cff
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="which files belong is known to git only")
def test_no_file_names_a_registry_or_a_place_of_one_machine():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    found = [
        f"{name}: {hit.group()}"
        for name in filter(None, listed)
        if name != "tests/test_project.py" and (ROOT / name).is_file()
        for hit in PRIVATE.finditer((ROOT / name).read_text(errors="replace"))
    ]
    assert not found


def test_a_test_that_opens_a_model_says_which_tier_it_is_in():
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text()
        for fixture, marker in (("smollm", "real"), ("tiny_model", "tiny")):
            if re.search(rf"def test_\w+\([^)]*\b{fixture}\b", text):
                assert f"pytest.mark.{marker}" in text, f"{path.name} uses {fixture}"


def test_the_tiers_budgets_are_those_of_the_makefile():
    makefile = dict(re.findall(r"^([A-Z]+)_MINUTES := (\d+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    table = re.findall(r"^\| (\w+) \| \S+ \| (\d+) \|", (ROOT / "tests" / "README.md").read_text(), re.MULTILINE)
    assert {tier.upper(): minutes for tier, minutes in table} == makefile


def test_no_two_test_files_share_a_name():
    """Test folders are no packages, so a name that stands twice is collected once."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(set(names)) == len(names)
