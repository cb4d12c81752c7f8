"""A shard of activations made by a worker: texts tokenised, run through the reader, written as they come."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lmassay.cot.kept_tokens import TokenRules
from lmassay.cot.reading_plan import SHARD_TOKENS, prepared
from lmassay.cot.scaffold import Scaffold
from lmassay.errors import LmassayError
from lmassay.storage.activations import EXAMPLES, KEPT, POOLINGS, SHARDS
from lmassay.storage.runs import first_difference
from lmassay.storage.shards import TYPES, Shards

if TYPE_CHECKING:
    import polars as pl

    from lmassay.cot.task import TaskData
    from lmassay.models.language_model import LanguageModel
    from lmassay.models.source import Reader

#: What safetensors calls the storage's types.
STORED = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


@dataclass(frozen=True, slots=True)
class DataSource:
    """Which data is read, picklable.

    Attributes
    ----------
    task : str
    layout, regime, source, validation
        As in `load_task`.
    train_cap : int or None
        The most training rows, as in `capped`; `seed` chooses them.
    test_cap : int or None
        The most rows of validation and of each test split, as in `sliced`; chosen by seed 0.
    """

    task: str
    layout: str = "head"
    regime: str | None = None
    source: str | None = None
    validation: str | None = None
    train_cap: int | None = None
    seed: int = 0
    test_cap: int | None = None

    def load(self) -> TaskData:
        """The data, of which the text is not yet read.

        Raises
        ------
        LmassayError
            As `load_task` and `capped` do; ``cot-data-missing`` for data without chains of thought.
        """
        from lmassay.cot.cap import capped
        from lmassay.cot.load import load_task, require_segments
        from lmassay.cot.slices import sliced

        data = load_task(self.task, self.layout, self.regime, self.source, validation=self.validation)
        require_segments(data, [kind for kind in ("cot", "message") if kind in data.task.segments])
        data = data if self.test_cap is None else sliced(data, self.test_cap)
        return data if self.train_cap is None else capped(data, self.train_cap, self.seed)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be kept.

    Attributes
    ----------
    blocks : tuple of int
        Blocks whose pooled states are kept.
    token_blocks : tuple of int
        Of those, blocks whose state at every token is kept.
    storage : {"bfloat16", "float16", "float32"}
        Of token states; pooled states are float32.
    batch_tokens : int or None
        Of one forward pass. Other batches give states that differ by rounding.
    shard_tokens : int
        Tokens read for one shard.
    """

    blocks: tuple[int, ...]
    token_blocks: tuple[int, ...]
    rules: TokenRules = field(default_factory=TokenRules)
    storage: str = "bfloat16"
    batch_tokens: int | None = None
    shard_tokens: int = SHARD_TOKENS

    def __post_init__(self) -> None:
        if self.storage not in STORED:
            raise LmassayError("bad-request", f"no storage type {self.storage!r}", f"choose one of {', '.join(STORED)}")
        if not self.blocks:
            raise LmassayError("bad-request", "no block is asked for", "name blocks: --blocks 8,16,24")
        for blocks in (self.blocks, self.token_blocks):
            if len(set(blocks)) < len(blocks):
                raise LmassayError("bad-request", f"a block is asked for twice: {_listed(blocks)}", "name it once")
        strange = sorted(set(self.token_blocks) - set(self.blocks))
        if strange:
            raise LmassayError(
                "bad-request",
                f"token states of block {strange[0]} are asked for, and the blocks are {_listed(self.blocks)}",
                "name it in --blocks too",
            )

    @property
    def poolings(self) -> tuple[str, ...]:
        """With one token an example there is nothing to pool."""
        return ("last",) if self.rules.tokens == "last" else POOLINGS

    def tensors(self, n: int, n_tokens: int, n_spans: int, width: int) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Types and shapes of a shard's tensors."""
        return {
            "keys": ("I64", (n,)),
            "lengths": ("I64", (n,)),
            "span_counts": ("I32", (n,)),
            "spans": ("I32", (n_spans, 3)),
            "token_ids": ("I32", (n_tokens,)),
            **{f"block.{b}.{p}": ("F32", (n, width)) for b in self.blocks for p in self.poolings},
            **{f"block.{b}.tokens": (STORED[self.storage], (n_tokens, width)) for b in self.token_blocks},
        }

    def n_bytes(self, plan: pl.DataFrame, width: int) -> int:
        """What the shards of a plan will take."""
        kept = plan.filter(status=KEPT)
        sizes = (kept.height, int(kept["n_tokens"].sum()), int(kept["n_spans"].sum()))
        return sum(TYPES[kind].itemsize * int(np.prod(shape)) for kind, shape in self.tensors(*sizes, width).values())


def identity_of(data: TaskData, model: LanguageModel, asked: Asked, scaffold: Scaffold) -> dict[str, Any]:
    """Everything that decides a number; where files are and what they are called does not."""
    from lmassay.models.extract import default_batch_tokens

    return {
        "suite": "activations",
        "task": {
            "id": data.task.id,
            "layout": data.layout,
            "regime": data.regime,
            "validation": data.validation,
            "sha256": data.uncapped or data.fingerprint,
            "train_cap": data.train_cap,
            **({} if data.test_cap is None else {"test_cap": data.test_cap}),
            "rows_sha256": data.fingerprint,
        },
        "model": asdict(model.fingerprint),
        "convention": {k: v for k, v in model.convention().items() if k != "lens"},
        "scaffold": scaffold.describe(),
        "settings": {
            "blocks": list(asked.blocks),
            "token_blocks": list(asked.token_blocks),
            "poolings": list(asked.poolings),
            **asdict(asked.rules),
            "storage": asked.storage,
            "batch_tokens": asked.batch_tokens or default_batch_tokens(model),
            "shard_tokens": asked.shard_tokens,
        },
    }


def content_of(identity: dict[str, Any], keys: NDArray[np.int64]) -> str:
    """Names what a shard holds, so that a shard of something else never matches."""
    return json.dumps([identity, keys.tolist()], sort_keys=True)


@dataclass(frozen=True)
class Extraction:
    """A job for an executor: everything a worker on another machine needs to make any of the shards.

    Attributes
    ----------
    out : str
        The store's folder, which every worker must see; it holds the plan already.
    identity : dict
        What the worker's own model and data must turn out to be.
    threads : int
        Of a CPU worker. Another number may change the last bits.
    """

    source: DataSource
    reader: Reader
    asked: Asked
    out: str
    identity: dict[str, Any]
    threads: int

    def open(self) -> Extractor:
        """Open the model and the data, and refuse others than the plan was made with.

        Raises
        ------
        LmassayError
            ``run-folder-mismatch``.
        """
        import torch

        torch.set_num_threads(self.threads)
        data, model = self.source.load(), self.reader.open()
        found = identity_of(data, model, self.asked, Scaffold(model.tokens))
        if (differing := first_difference(self.identity, found)) is not None:
            name, planned, here = differing
            raise LmassayError(
                "run-folder-mismatch",
                f"a worker has {name} = {here}, the plan {planned}",
                "give every machine the same package, model and data",
            )
        return Extractor(data, model, self.asked, Path(self.out), self.identity)


@dataclass(frozen=True)
class Extractor:
    """An opened extraction."""

    data: TaskData
    model: LanguageModel
    asked: Asked
    out: Path
    identity: dict[str, Any]

    @cached_property
    def plan(self) -> pl.DataFrame:
        """The plan that stands in the folder."""
        import polars as pl

        return pl.read_parquet(self.out / EXAMPLES)

    @cached_property
    def scaffold(self) -> Scaffold:
        """How texts are written for the reader."""
        return Scaffold(self.model.tokens)

    def run(self, item: int) -> int:
        """Make one shard; the tokens read for it.

        Raises
        ------
        LmassayError
            ``activations-broken`` when the data no longer gives the planned tokens, ``disk-full``,
            ``non-finite-logits``.
        """
        from lmassay.models.extract import Reading, extract, width_of

        rows = self.plan.filter(shard=item).sort("row")
        examples = self._examples(rows)
        readings, spans, counts = [], [], []
        for example, found in examples:
            own = found.spans(example)
            readings.append(Reading(found.ids, found.kept))
            spans.append(own)
            counts.append(len(own))
        lengths = np.array([len(r.kept) for r in readings], dtype=np.int64)
        if not np.array_equal(lengths, rows["n_tokens"].to_numpy()):
            raise LmassayError(
                "run-folder-mismatch", f"texts of shard {item} are not those of the plan", "extract into another folder"
            )
        start = np.cumsum(lengths) - lengths
        keys = rows["key"].to_numpy().astype(np.int64)
        tensors = self.asked.tensors(len(keys), int(lengths.sum()), sum(counts), width_of(self.model))
        asked = self.asked
        with Shards(self.out / SHARDS).new(item, content_of(self.identity, keys), tensors) as shard:
            shard.put("keys", 0, keys)
            shard.put("lengths", 0, lengths)
            shard.put("span_counts", 0, np.array(counts, dtype=np.int32))
            shard.put("spans", 0, np.concatenate(spans))
            shard.put("token_ids", 0, np.concatenate([r.ids[r.kept] for r in readings]))
            for batch in extract(
                self.model,
                readings,
                asked.blocks,
                token_blocks=asked.token_blocks,
                poolings=asked.poolings,
                storage=asked.storage,
                batch_tokens=self.identity["settings"]["batch_tokens"],
            ):
                stops = np.cumsum(lengths[list(batch.members)])
                for at, member in enumerate(batch.members):
                    for b, block in enumerate(asked.blocks):
                        for p, pooling in enumerate(asked.poolings):
                            shard.put(f"block.{block}.{pooling}", member, batch.pooled[b, p, at][None])
                    own = slice(stops[at] - lengths[member], stops[at])
                    for b, block in enumerate(asked.token_blocks):
                        shard.put(f"block.{block}.tokens", int(start[member]), batch.tokens[b, own])
        return int(sum(len(r.ids) for r in readings))

    def _examples(self, rows: pl.DataFrame) -> list[Any]:
        """Examples with their tokens, in the order of the shard's rows."""
        found: dict[int, Any] = {}
        for name, split in self.data.splits.items():
            keys = rows.filter(split=name)["key"].to_numpy()
            if len(keys):
                order = np.argsort(split.examples.keys)
                at = order[np.searchsorted(split.examples.keys, keys, sorter=order)]
                picked = prepared(split.examples.take(at), self.model, self.scaffold, self.asked.rules)
                found |= {example.key: (example, own) for example, own in picked}
        return [found[key] for key in rows["key"].to_list()]


def _listed(blocks: tuple[int, ...]) -> str:
    return ", ".join(map(str, blocks))
