"""The notebook in examples/: kept without outputs, and run from its first cell to its last."""

from __future__ import annotations

import ast
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "examples" / "both_suites.ipynb"


def _read():
    return nbformat.read(NOTEBOOK, as_version=4)


def test_it_is_a_notebook_without_outputs():
    notebook = _read()
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) > 10
    for cell in cells:
        ast.parse(cell.source)
        assert (cell.outputs, cell.execution_count) == ([], None)


@pytest.mark.real
@pytest.mark.slow
def test_it_runs_from_the_first_cell_to_the_last(tmp_path):
    notebook = _read()
    # The smallest battery; everything else as a reader runs it.
    assert "balanced:8" in notebook.cells[1].source
    notebook.cells[1].source = notebook.cells[1].source.replace("balanced:8", "balanced:4")
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]
    assert any("verdict" in str(out.get("data", {})) for out in shown)
    assert not [out for out in shown if out.output_type == "error"]
