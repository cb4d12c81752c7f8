"""A stranger's package: built, installed beside this one without a network, found by name, held to the contract."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lmassay.errors import LmassayError
from lmassay.methods import registry
from lmassay.methods.method import Method
from lmassay.methods.registry import known_methods, load_method, method

PACKAGE = Path(__file__).parents[2] / "examples" / "third_party_method"

USE = """
import shutil
import sys
sys.path[:0] = sys.argv[1:]
from made_cot import made_data
from lmassay.cot.evaluate import evaluate
from lmassay.methods.registry import known_methods
assert "hedging" in known_methods()
found = evaluate(made_data(n=80), "hedging")
assert found.document["identity"]["method"]["id"] == "hedging"
print(found.scored.scores["test.auroc"].value)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The package in a folder of its own, so that the tests' environment stays as it is."""
    folder = tmp_path_factory.mktemp("site")
    build = tmp_path_factory.mktemp("build") / "package"
    # Building writes beside the sources, and those are not to change.
    shutil.copytree(PACKAGE, build)
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*install, "--target", str(folder), str(build)], check=True, capture_output=True)
    return folder


def _python(installed, *arguments):
    return subprocess.run(
        [sys.executable, *arguments],
        env={"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        cwd=installed,
    )


def test_a_package_s_method_is_found_by_its_entry_point_and_evaluated(installed):
    run = _python(installed, "-c", USE, str(Path(__file__).parents[1] / "cot"))
    assert run.returncode == 0, run.stderr
    # Positives say "hmm wait" in seven of ten texts, negatives never.
    assert float(run.stdout) > 0.75


def test_its_own_test_passes(installed):
    run = _python(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(PACKAGE / "tests"))
    assert run.returncode == 0, run.stdout


def test_without_the_package_the_name_is_unknown():
    assert "hedging" not in known_methods()
    with pytest.raises(LmassayError, match="no method 'hedgin'"):
        load_method("hedgin")


def _entry_point(value, name="mine"):
    return registry.EntryPoint(name=name, value=value, group=registry.GROUP)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (["nowhere_at_all:Method"], r"'mine' \(nowhere_at_all:Method\) cannot be imported: ModuleNotFoundError"),
        (["math:pi"], "math:pi is no class with fit and score"),
        (["a:B", "c:D"], "two packages have a method 'mine'"),
    ],
)
def test_a_broken_package_is_named(monkeypatch, points, message):
    found = [_entry_point(value) for value in points]
    monkeypatch.setattr(registry, "entry_points", lambda group: found)
    assert "mine" in known_methods()
    with pytest.raises(LmassayError, match=message):
        load_method("mine")


def test_a_method_cannot_take_a_name_that_is_taken():
    with pytest.raises(LmassayError, match="two methods are called 'tfidf'"):

        @method
        class Mine(Method):
            id = "tfidf"


def test_a_decorated_class_is_known_by_its_name():
    @method
    class Mine(Method):
        id = "mine_by_decorator"

    assert load_method("mine_by_decorator") is Mine
    assert "mine_by_decorator" in known_methods()
