"""The ablation sweep against the same sweep with a peer's hooks, the peer in its own environment.

    python benchmarks/ablation.py make work.json [--components 4]    # in lmassay's environment
    python benchmarks/ablation.py nnsight work.json                  # in an environment with the peer installed
    python benchmarks/ablation.py transformer_lens work.json

core50's prompts x options on SmolLM2-135M, components spread evenly over the blocks, each zeroed at every token; the
residual stream read from its block on, only option tokens projected. Run one after the other on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import torch

from peers import batches, padded


def make(out: str, n_components: int) -> None:
    """Write the work with lmassay's own time and log-probabilities."""
    from lmassay.models.ablation import Zeroed, ablated_means
    from lmassay.models.components import components_of
    from lmassay.models.engines import score
    from lmassay.models.open import open_model
    from work import announce, peak_mb, requests, seconds

    announce()
    model = open_model("smollm2-135m")
    work = requests(model, "core50", ("real",))
    every = components_of(model)
    step = len(every) / n_components
    # Odd and even by turns, so that attention and MLP both occur.
    chosen = [every[int((i + 0.5) * step) // 2 * 2 + i % 2] for i in range(n_components)]
    score(model, work)
    before = peak_mb()
    found: list = []
    took = seconds(lambda: found.extend(ablated_means(model, work, chosen, Zeroed())))
    pairs = [
        (r.context, t, values[:, column].tolist())
        for r, values in zip(work, found, strict=True)
        for column, t in enumerate(r.targets)
    ]
    content = {
        "folder": model.hf.config.name_or_path,
        "pairs": pairs,
        "components": [(c.block, c.kind) for c in chosen],
        "seconds": took,
    }
    Path(out).write_text(json.dumps(content))
    print(f"lmassay: {len(pairs)} pairs, {[c.name for c in chosen]}, {took:.1f} s")
    print(f"peak {peak_mb():.0f} MB, of the option scores alone {before:.0f} MB")


def nnsight_ablated(folder: str):
    from nnsight import LanguageModel

    model = LanguageModel(folder, device_map="cpu", dtype=torch.float32, dispatch=True)

    def states(ids, mask, rows, cols, block, kind):
        saved = []
        with torch.no_grad(), model.trace({"input_ids": ids, "attention_mask": mask}):
            layer = model.model.layers[block]
            if kind == "attention":
                layer.self_attn.output[0][:] = 0
            else:
                layer.mlp.output[:] = 0
            for later in list(model.model.layers)[block:]:
                output = later.output
                saved.append((output[0] if isinstance(output, tuple) else output)[rows, cols].save())
        return saved

    return states, model._module.model.norm, model._module.lm_head


def transformer_lens_ablated(folder: str):
    from transformer_lens.model_bridge import TransformerBridge

    bridge = TransformerBridge.boot_transformers(folder, device="cpu", dtype=torch.float32)
    hf = bridge.original_model

    def states(ids, mask, rows, cols, block, kind):
        name = f"blocks.{block}.{'attn' if kind == 'attention' else 'mlp'}.hook_out"
        names = [f"blocks.{i}.hook_out" for i in range(block, bridge.cfg.n_layers)]
        saved = {}

        def keep(tensor, hook):
            saved[hook.name] = tensor[rows, cols]

        hooks = [(name, lambda tensor, hook: torch.zeros_like(tensor)), *((n, keep) for n in names)]
        with torch.no_grad():
            bridge.run_with_hooks(ids, attention_mask=mask, fwd_hooks=hooks)
        return [saved[n] for n in names]

    return states, hf.model.norm, hf.lm_head


def peer(name: str, path: str) -> None:
    """Time the peer's sweep and hold it against ours."""
    work = json.loads(Path(path).read_text())
    states, norm, head = {"nnsight": nnsight_ablated, "transformer_lens": transformer_lens_ablated}[name](
        work["folder"]
    )
    pairs = work["pairs"]

    @torch.no_grad()
    def run(chosen: list[list[int]], components: list) -> float:
        worst = 0.0
        for at, (block, kind) in components:
            for batch in chosen:
                ids, mask, rows, cols, targets = padded(pairs, batch)
                read = states(ids, mask, rows, cols, block, kind)
                found = torch.stack(
                    [torch.log_softmax(head(norm(s)), -1).gather(1, targets[:, None])[:, 0] for s in read]
                )
                start = 0
                for i in batch:
                    stop = start + len(pairs[i][1])
                    mean = found[:, start:stop].double().mean(1)
                    ours = torch.tensor(pairs[i][2][at], dtype=torch.float64)[block + 1 : -1]
                    worst = max(worst, float((mean - ours).abs().max()))
                    start = stop
        return worst

    components = list(enumerate(work["components"]))
    chosen = batches(pairs)
    run(chosen[-1:], components[-1:])
    start = time.perf_counter()
    worst = run(chosen, components)
    took = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name}: {took:.1f} s, {took / work['seconds']:.2f} times lmassay's, peak {peak:.0f} MB, agreement {worst:.1e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["make", "nnsight", "transformer_lens"])
    parser.add_argument("work")
    parser.add_argument("--components", type=int, default=4)
    arguments = parser.parse_args()
    if arguments.what == "make":
        make(arguments.work, arguments.components)
    else:
        peer(arguments.what, arguments.work)


if __name__ == "__main__":
    main()
