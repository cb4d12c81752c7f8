"""The sampling engines against what one would write without them, on SmolLM2-135M.

    python benchmarks/generate.py continuations [--samples 50] [--prefix 300] [--new 64] [--singles 50] [--repeats 2]
    python benchmarks/generate.py entropy [--sentences 60] [--singles 60] [--repeats 2]
    python benchmarks/generate.py served [--requests 400] [--concurrency 16] [--delay 0.05] [--repeats 3]

* continuations: samples of one prefix, all at once, against one `generate` call of transformers each.
* entropy: the letter distribution after a forced answer at every sentence boundary of one rollout, from one pass over
  the rollout and its forced tails, against a fresh forward pass for every boundary.
* served: the engine's requests per second against those of a bare asyncio client at the same concurrency; both ask a
  server of this file, in a process of its own, that answers after `--delay` seconds.

Run it on a quiet machine. Times are the best of `--repeats`; fewer `--singles` than samples are scaled up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from typing import Any

import numpy as np
import torch

from lmassay.models.generate import InProcess
from lmassay.models.open import open_model
from lmassay.models.sampling import Prompt, Sample, Sampling
from work import announce, seconds

SUBJECT = "smollm2-135m"
SENTENCE = "Step {n}: we take the number {n} and add it to what we had, which gives {m}."
QUESTION = "Which number do we end with?\n\nA. 10\nB. 20\nC. 30\nD. 40\n\nAnswer with just the letter."


def _rollout(sentences: int) -> list[str]:
    return [SENTENCE.format(n=n, m=n * (n + 1) // 2) for n in range(1, sentences + 1)]


@torch.inference_mode()
def continuations(arguments: argparse.Namespace) -> None:
    """Samples of one prefix, all to the same length, so that both ways draw the same number of tokens."""
    model = open_model(SUBJECT)
    engine = InProcess(model)
    # No token ends a turn, here or there: every continuation has the same length.
    engine._ends.clear()
    text = " ".join(_rollout(200))
    ids = engine.renderer.tokens.encode(text)[: arguments.prefix]
    prompt = Prompt.of(QUESTION, engine.renderer.tokens.hf.decode(ids))
    given = torch.tensor([engine.renderer.ids(prompt)])
    sampling = Sampling(0.7, max_tokens=arguments.new)
    drawn: list[Sample] = []

    def ours() -> None:
        drawn.clear()
        asked = [(prompt, sampling, seed) for seed in range(arguments.samples)]
        engine.sample(asked, each=lambda _, sample: drawn.append(sample))

    def single() -> None:
        model.hf.generate(
            given,
            attention_mask=torch.ones_like(given),
            do_sample=True,
            temperature=0.7,
            top_k=0,
            max_new_tokens=arguments.new,
            min_new_tokens=arguments.new,
            pad_token_id=0,
        )

    single()
    fast = seconds(ours, arguments.repeats)
    assert all(sample.n_tokens == arguments.new for sample in drawn)
    slow = seconds(lambda: [single() for _ in range(arguments.singles)]) * arguments.samples / arguments.singles
    tokens = arguments.samples * arguments.new
    print(f"{arguments.samples} continuations of {given.shape[1]} tokens by {arguments.new}:")
    print(
        f"one by one {slow:.1f} s ({tokens / slow:.0f} tokens/s), at once {fast:.1f} s ({tokens / fast:.0f} tokens/s)"
    )
    print(f"{slow / fast:.1f} times faster")


@torch.inference_mode()
def entropy(arguments: argparse.Namespace) -> None:
    """The letters' distribution at every sentence boundary of one rollout."""
    model = open_model(SUBJECT)
    engine = InProcess(model)
    sentences = _rollout(arguments.sentences)
    prompts = [
        Prompt.of(QUESTION, f"{' '.join(sentences[:n])} So, the answer is: ") for n in range(1, len(sentences) + 1)
    ]
    letters = ["ABCD"] * len(prompts)
    tokens = [engine.renderer.letter_token(letter) for letter in "ABCD"]
    found: list[np.ndarray] = []

    def ours() -> None:
        found[:] = [np.array(one.low) for one in engine.letters(prompts, letters)]

    def fresh(prompt: Prompt) -> np.ndarray:
        logits = model.hf(torch.tensor([engine.renderer.ids(prompt)]), use_cache=False, logits_to_keep=1).logits
        return torch.log_softmax(logits[0, -1].float(), -1)[tokens].double().numpy()

    chosen = np.linspace(0, len(prompts) - 1, arguments.singles).astype(int)
    reference: list[np.ndarray] = []
    fast = seconds(ours, arguments.repeats)
    slow = seconds(lambda: reference.extend(fresh(prompts[i]) for i in chosen)) * len(prompts) / len(chosen)
    gap = max(float(np.abs(found[i] - one).max()) for i, one in zip(chosen, reference, strict=True))
    longest = len(engine.renderer.ids(prompts[-1]))
    print(f"{len(prompts)} boundaries of a rollout of {longest} tokens: largest difference {gap:.1e} nats")
    print(f"a fresh pass each {slow:.1f} s, at once {fast:.1f} s: {slow / fast:.1f} times faster")


def server(arguments: argparse.Namespace) -> None:
    """Answer every completion after the same delay, whatever is asked."""
    body: dict[str, Any] = {
        "id": "1", "object": "text_completion", "created": 0, "model": "made",
        "choices": [{"index": 0, "text": " word" * 200, "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 200, "total_tokens": 210},
    }  # fmt: skip

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            lines = head.decode().lower().split("\r\n")
            length = next((int(line.split(":")[1]) for line in lines if line.startswith("content-length:")), 0)
            asked = await reader.readexactly(length)
            content = json.dumps({"object": "list", "data": [{"id": "made", "object": "model"}]})
            if b"prompt" in asked or b"messages" in asked:
                await asyncio.sleep(arguments.delay)
                # The engine checks that the server reads the tokens it was sent.
                prompt = json.loads(asked).get("prompt")
                body["usage"]["prompt_tokens"] = len(prompt) if isinstance(prompt, list) else 0
                content = json.dumps(body)
            answer_head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
            writer.write((answer_head + content).encode())
            await writer.drain()
        writer.close()

    async def run() -> None:
        listening = await asyncio.start_server(answer, "127.0.0.1", 0)
        print(listening.sockets[0].getsockname()[1], flush=True)
        await listening.serve_forever()

    asyncio.run(run())


def served(arguments: argparse.Namespace) -> None:
    """Requests per second, the engine's and a bare client's in turn."""
    from openai import AsyncOpenAI

    from lmassay.models.open import open_tokenizer
    from lmassay.models.served import Served

    words = [sys.executable, __file__, "server", "--delay", str(arguments.delay)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
            tokens = open_tokenizer(SUBJECT)
            engine = Served(url, "made", tokens=tokens, concurrency=arguments.concurrency)
            prompt = Prompt.of(QUESTION, " ".join(_rollout(20)))
            ids = engine.renderer.ids(prompt) if engine.renderer else []
            sampling = Sampling(0.7, max_tokens=200)

            async def bare() -> None:
                gate = asyncio.Semaphore(arguments.concurrency)
                async with AsyncOpenAI(base_url=url, api_key="none") as client:

                    async def one(seed: int) -> None:
                        async with gate:
                            await client.completions.create(
                                model="made", prompt=ids, max_tokens=200, temperature=0.7, seed=seed
                            )

                    await asyncio.gather(*map(one, range(arguments.requests)))

            def ours() -> None:
                asked = [(prompt, sampling, seed) for seed in range(arguments.requests)]
                engine.sample(asked, each=lambda _, __: None)

            times = [(seconds(lambda: asyncio.run(bare())), seconds(ours)) for _ in range(arguments.repeats)]
            plain, own = (min(column) for column in zip(*times, strict=True))
            n = arguments.requests
            print(f"{n} requests, {arguments.concurrency} at a time: bare {n / plain:.1f}/s, engine {n / own:.1f}/s")
            print(f"{plain / own:.0%} of the bare client's throughput")
        finally:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("continuations", "entropy", "served", "server"))
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--prefix", type=int, default=300)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--sentences", type=int, default=60)
    parser.add_argument("--singles", type=int, default=50)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--delay", type=float, default=0.05)
    parser.add_argument("--repeats", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.what == "server":
        server(arguments)
        return
    announce()
    start = time.perf_counter()
    {"continuations": continuations, "entropy": entropy, "served": served}[arguments.what](arguments)
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
