"""Against the plain way and against the floor, in one run on SmolLM2-135M.

    python benchmarks/plain.py [core50|long] [--repeats N]

The plain way runs one sequence per forward pass and takes a full log-softmax over the vocabulary at every token and
depth. The floor is what the same unique work costs at the best of five rates: unique contexts x depths through a
128-row head product with log-softmax, and unique tokens through a bare packed forward pass of the body.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from lmassay.models.engines import score
from lmassay.models.language_model import LanguageModel
from lmassay.models.open import open_model
from lmassay.models.tree import Continuations, plan
from work import announce, largest_gap, pairs, requests, seconds


@torch.inference_mode()
def plain(model: LanguageModel, work: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> list[np.ndarray]:
    """Log-probabilities (n_tokens, n_depths) of each prompt x option, written as one would in a notebook."""
    hf, anatomy = model.hf, model.anatomy
    last: list[torch.Tensor] = []
    # Hugging Face's list of hidden states holds the last block's output only after the final norm.
    handle = anatomy.blocks[-1].register_forward_hook(
        lambda _, __, out: last.append(out[0] if isinstance(out, tuple) else out)
    )
    found = []
    for context, target in work:
        ids = torch.tensor([[*context, *target]])
        out = hf(ids, output_hidden_states=True, use_cache=False)
        states = [*out.hidden_states[:-1], last.pop()]
        start, stop = len(context) - 1, ids.shape[1] - 1
        rows = []
        for state in states:
            log_probs = torch.log_softmax(anatomy.head(anatomy.norm(state[0])), -1)
            rows.append(log_probs[torch.arange(start, stop), torch.tensor(target)])
        rows.append(torch.log_softmax(out.logits[0], -1)[torch.arange(start, stop), torch.tensor(target)])
        found.append(torch.stack(rows, 1).double().numpy())
    handle.remove()
    return found


@torch.inference_mode()
def floor(model: LanguageModel, work: list[Continuations]) -> float:
    """Seconds the unique work costs at the best rates found in this run."""
    trees = [tree for request in work for tree in plan(request, 10_000).trees]
    contexts = sum(len(np.unique(tree.edge_node)) for tree in trees)
    tokens = sum(map(len, trees))
    rows = torch.randn(128, model.anatomy.head.in_features)
    head = seconds(lambda: torch.log_softmax(model.anatomy.head(rows), -1), 5) / len(rows)
    width = max(1, tokens // len(trees))
    ids = torch.randint(3, 1000, (max(1, 1024 // width), width))
    body = seconds(lambda: model.hf.base_model(ids, use_cache=False), 5) / ids.numel()
    print(f"floor: {contexts} contexts x {model.n_blocks + 1} depths, {tokens} tokens")
    return contexts * (model.n_blocks + 1) * head + tokens * body


def tokens_of(work: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> int:
    return sum(len(context) + len(target) for context, target in work)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("battery", nargs="?", default="core50")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--every", type=int, default=1, help="time the plain way on every Nth pair only, and scale")
    arguments = parser.parse_args()
    announce()
    model = open_model("smollm2-135m")
    work = requests(model, arguments.battery)
    flat = pairs(work)
    score(model, work[:2])
    fast = seconds(lambda: score(model, work), arguments.repeats)
    bound = floor(model, work)
    reference: list[np.ndarray] = []
    chosen = flat[:: arguments.every]
    slow = seconds(lambda: reference.extend(plain(model, chosen)))
    # By tokens, which is what the plain way's time goes by.
    slow *= tokens_of(flat) / tokens_of(chosen)
    relabelled = 2 * tokens_of(pairs(requests(model, arguments.battery, ("real",)))) / tokens_of(flat)
    packed = [tokens for targets in score(model, work) for tokens in targets][:: arguments.every]
    print(f"agreement with the plain way: {largest_gap(reference, packed):.1e} nats")
    print(f"{arguments.battery}: {len(flat)} prompt x option pairs")
    print(f"plain {slow:.1f} s, lmassay {fast:.1f} s: {slow / fast:.1f} times faster")
    again = slow * (1 + relabelled)
    print(f"plain with the two relabelled conditions scored anew: {again:.1f} s, {again / fast:.1f} times")
    print(f"floor {bound:.1f} s: {bound / fast:.0%} of it reached")


if __name__ == "__main__":
    main()
