"""Make the pinned log-likelihoods of tests/xray/test_lm_eval.py with lm-evaluation-harness itself.

    python -m venv .lm-eval && .lm-eval/bin/pip install lm_eval transformers
    .lm-eval/bin/python benchmarks/lm_eval_pins.py FOLDER > tests/xray/lm_eval_pins.json

FOLDER is the converted bundled model: `lmassay models check smollm2-135m` leaves it in the cache, under ``converted/``.
Reads the prompts and options from ``pairs.json`` on standard input.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

from lm_eval.models.huggingface import HFLM

pairs = json.load(sys.stdin)
model = HFLM(pretrained=sys.argv[1], dtype="float32", device="cpu", batch_size=1)
answers = model.loglikelihood([SimpleNamespace(args=(context, continuation)) for context, continuation in pairs])
json.dump(
    [
        {"context": c, "continuation": o, "log_likelihood": float(value)}
        for (c, o), (value, _) in zip(pairs, answers, strict=True)
    ],
    sys.stdout,
    indent=1,
)
