"""The same measurement of many models, each in a run folder of its own, by whatever executor works it off."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lmassay.xray.run import Settings, run_xray

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel
    from lmassay.models.source import ModelSource
    from lmassay.xray.task import Battery


@dataclass(frozen=True)
class Measurements:
    """A job: item i is model i.

    Attributes
    ----------
    models : tuple of ModelSource
    outs : tuple of str
        The run folder of each, which must be visible wherever it is made.
    battery : str
        Its name or file.
    lens : str
        ``logit``, ``tuned`` or a tuned lens's folder.
    threads : int
        Of a worker.
    """

    models: tuple[ModelSource, ...]
    outs: tuple[str, ...]
    battery: str
    settings: Settings
    lens: str
    command: str
    threads: int

    def open(self) -> Measuring:
        """Load the battery; models are opened one after the other, as they are measured."""
        import torch

        from lmassay.xray.batteries import load_battery

        torch.set_num_threads(self.threads)
        return Measuring(self, load_battery(self.battery, seed=self.settings.seed))


@dataclass(frozen=True)
class Measuring:
    """The job, opened."""

    job: Measurements
    battery: Battery

    def run(self, item: int) -> str:
        """Measure one model, going on where an earlier try stopped; its run folder.

        Raises
        ------
        LmassayError
            As `run_xray` and opening the model do.
        """

        def open_it() -> LanguageModel:
            from lmassay.models.tuned_lens import with_lens

            return with_lens(self.job.models[item].open(), self.job.lens)

        out = self.job.outs[item]
        run_xray(open_it, self.battery, Path(out), self.job.settings, command=self.job.command)
        return out
