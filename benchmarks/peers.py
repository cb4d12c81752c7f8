"""The same measurement with a peer library, run in that library's own environment.

    python benchmarks/peers.py make core50 work.json        # in lmassay's environment: folder, token ids, our own time
    python benchmarks/peers.py nnsight work.json            # in an environment with the peer installed
    python benchmarks/peers.py nnterp work.json
    python benchmarks/peers.py transformer_lens work.json

Every distinct prompt x option once, right-padded batches as the peer's documentation advises, the residual stream of
every block at the option's contexts, and only those projected. Each prints seconds, peak memory and its largest
difference from lmassay's log-probabilities. Run them one after the other on a quiet machine and take ratios.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import torch

BATCH = 32


def make(battery: str, out: str) -> None:
    """Write the work, and lmassay's own time and log-probabilities."""
    from lmassay.models.engines import score
    from lmassay.models.open import open_model
    from work import peak_mb, requests, seconds

    model = open_model("smollm2-135m")
    work = requests(model, battery)
    score(model, work[:2])
    took = seconds(lambda: score(model, work))
    found = score(model, work)
    pairs = [
        (r.context, t, tokens.tolist())
        for r, targets in zip(work, found, strict=True)
        for t, tokens in zip(r.targets, targets, strict=True)
    ]
    Path(out).write_text(json.dumps({"folder": model.hf.config.name_or_path, "pairs": pairs, "seconds": took}))
    print(f"lmassay {battery}: {len(pairs)} pairs, {took:.1f} s, peak {peak_mb():.0f} MB")


def batches(pairs: list) -> list[list[int]]:
    """Pairs sorted by length, in batches."""
    order = sorted(range(len(pairs)), key=lambda i: -len(pairs[i][0]) - len(pairs[i][1]))
    return [order[i : i + BATCH] for i in range(0, len(order), BATCH)]


def padded(
    pairs: list, batch: list[int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids, mask, and for every scored token its row, column and target."""
    sequences = [[*pairs[i][0], *pairs[i][1][:-1]] for i in batch]
    width = max(map(len, sequences))
    ids = torch.tensor([s + [0] * (width - len(s)) for s in sequences])
    mask = torch.tensor([[1] * len(s) + [0] * (width - len(s)) for s in sequences])
    rows, cols, targets = [], [], []
    for row, i in enumerate(batch):
        for at, token in enumerate(pairs[i][1]):
            rows.append(row)
            cols.append(len(pairs[i][0]) - 1 + at)
            targets.append(token)
    return ids, mask, torch.tensor(rows), torch.tensor(cols), torch.tensor(targets)


def project(states, norm, head, targets) -> torch.Tensor:
    """(n_depths, n) log-probabilities of the targets: only option tokens are projected."""
    found = [torch.log_softmax(head(norm(state)), -1).gather(1, targets[:, None])[:, 0] for state in states]
    return torch.stack([*found, found[-1]])


def nnsight_states(folder: str):
    from nnsight import LanguageModel

    model = LanguageModel(folder, device_map="cpu", dtype=torch.float32, dispatch=True)

    def states(ids, mask, rows, cols):
        saved = []
        with torch.no_grad(), model.trace({"input_ids": ids, "attention_mask": mask}):
            saved.append(model.model.layers[0].input[rows, cols].save())
            for layer in model.model.layers:
                output = layer.output
                saved.append((output[0] if isinstance(output, tuple) else output)[rows, cols].save())
        return saved

    return states, model._module.model.norm, model._module.lm_head


def nnterp_states(folder: str):
    from nnterp import StandardizedTransformer

    model = StandardizedTransformer(folder, device_map="cpu", dtype=torch.float32, dispatch=True)

    def states(ids, mask, rows, cols):
        saved = []
        with torch.no_grad(), model.trace({"input_ids": ids, "attention_mask": mask}):
            saved.append(model.token_embeddings[rows, cols].save())
            for i in range(model.num_layers):
                saved.append(model.layers_output[i][rows, cols].save())  # noqa: PERF401 - traced as it stands
        return saved

    # nnsight renamed its inner module between the versions nnterp and the benchmark use.
    inner = getattr(model, "_module", None) or model._model
    return states, inner.model.norm, inner.lm_head


def transformer_lens_states(folder: str):
    from transformer_lens.model_bridge import TransformerBridge

    bridge = TransformerBridge.boot_transformers(folder, device="cpu", dtype=torch.float32)
    names = ["blocks.0.hook_in"] + [f"blocks.{i}.hook_out" for i in range(bridge.cfg.n_layers)]
    hf = bridge.original_model

    def states(ids, mask, rows, cols):
        with torch.no_grad():
            _, cache = bridge.run_with_cache(ids, attention_mask=mask, names_filter=names)
        return [cache[name][rows, cols] for name in names]

    return states, hf.model.norm, hf.lm_head


def main() -> None:
    name, *arguments = sys.argv[1:]
    if name == "make":
        make(*arguments)
        return
    work = json.loads(Path(arguments[0]).read_text())
    states, norm, head = {
        "nnsight": nnsight_states,
        "nnterp": nnterp_states,
        "transformer_lens": transformer_lens_states,
    }[name](work["folder"])
    pairs = work["pairs"]

    @torch.no_grad()
    def run(chosen: list[list[int]]) -> float:
        worst = 0.0
        for batch in chosen:
            ids, mask, rows, cols, targets = padded(pairs, batch)
            found = project(states(ids, mask, rows, cols), norm, head, targets).T.double()
            ours = torch.tensor([row for i in batch for row in pairs[i][2]], dtype=torch.float64)
            worst = max(worst, float((found - ours).abs().max()))
        return worst

    chosen = batches(pairs)
    run(chosen[-1:])
    start = time.perf_counter()
    worst = run(chosen)
    took = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name}: {took:.1f} s, {took / work['seconds']:.2f} times lmassay's, peak {peak:.0f} MB, agreement {worst:.1e}"
    )


if __name__ == "__main__":
    main()
