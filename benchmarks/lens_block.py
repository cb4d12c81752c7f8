"""Why the lens multiplies with the weights on the left and the vocabulary in blocks.

    python benchmarks/lens_block.py

Log-normalisers of random rows over SmolLM2's vocabulary (49,152 x 576): a head product of 128 rows with log-softmax
over the whole vocabulary, against `lmassay.models.lens` by block size. Best of five; ratios in one run.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch

from lmassay.models import lens
from work import announce, seconds

VOCABULARY, WIDTH, ROWS = 49_152, 576, 512


@torch.inference_mode()
def main() -> None:
    announce()
    head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
    rows = torch.randn(ROWS, WIDTH)
    model = SimpleNamespace(anatomy=SimpleNamespace(head=head, finish=lambda logits: logits))
    plain = seconds(lambda: [torch.log_softmax(head(part), -1) for part in rows.split(128)], 5)
    print(f"128 rows, whole vocabulary: {plain:.3f} s")
    for block in (1024, 2048, 4096, 8192, VOCABULARY):
        lens.VOCABULARY_BLOCK = block
        took = seconds(lambda: lens._log_normaliser(model, rows), 5)
        print(f"{ROWS} rows, blocks of {block}: {took:.3f} s, {plain / took:.2f} times faster")


if __name__ == "__main__":
    main()
