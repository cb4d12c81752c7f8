"""A model by what it takes to open it, so that other processes and machines can open the same one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel


class Reader(Protocol):
    """Something that gives an opened model."""

    def open(self) -> LanguageModel:
        """The model."""
        ...


@dataclass(frozen=True, slots=True)
class ModelSource:
    """The arguments of `open_model`, picklable.

    Attributes
    ----------
    name : str
        A bundled name, folder, ``.gguf`` file or hub id.
    device_map : str, dict or None
        ``auto`` spreads a model that is larger than one card, by accelerate; a mapping says where each module is put.
    """

    name: str
    revision: str | None = None
    device: str | None = None
    dtype: str | None = None
    device_map: str | dict[str, Any] | None = None
    trust_remote_code: bool = False
    allow_pickle: bool = False
    accept_license: bool = False

    def open(self) -> LanguageModel:
        """Open and self-check it.

        Raises
        ------
        LmassayError
            As `open_model` does.
        """
        from lmassay.models.open import open_model

        return open_model(
            self.name,
            revision=self.revision,
            device=self.device,
            dtype=self.dtype,
            device_map=self.device_map,
            trust_remote_code=self.trust_remote_code,
            allow_pickle=self.allow_pickle,
            accept_license=self.accept_license,
        )
