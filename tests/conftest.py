"""Fixtures: tiny random models of every family, and the bundled one, opened once."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache

import pytest
import torch

from lmassay.models.language_model import LanguageModel
from lmassay.models.open import open_model
from tiny_models import tiny_hf, tiny_tokenizer

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Two workers share the two cores; alone, torch may have both.
torch.set_num_threads(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)


@cache
def _opened(family: str, bos: str, dtype: str) -> LanguageModel:
    return open_model(tiny_hf(family), tokenizer=tiny_tokenizer(bos), dtype=dtype)


@pytest.fixture(scope="session")
def tiny_model() -> Callable[..., LanguageModel]:
    """``tiny_model(family, bos="none", dtype="float32")``: opened once a session."""

    def get(family: str, bos: str = "none", dtype: str = "float32") -> LanguageModel:
        return _opened(family, bos, dtype)

    return get


@pytest.fixture(scope="session")
def smollm() -> LanguageModel:
    """The bundled SmolLM2-135M-Instruct."""
    return open_model("smollm2-135m")
