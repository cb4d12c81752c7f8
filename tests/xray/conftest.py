"""Fixtures of the xray tests."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread(request):
    """A random model of a few layers is too small to share: a second thread only waits, and keeps a core busy with it."""
    before = torch.get_num_threads()
    if request.node.get_closest_marker("tiny"):
        torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
