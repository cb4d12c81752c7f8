"""The trained weights that come with the package, one model per group, and the recipe they were made by.

``python -m lmassay.xray.calibrate.shipped`` makes them again.
"""

from __future__ import annotations

from pathlib import Path

from lmassay.xray.calibrate.models import Stack
from lmassay.xray.calibrate.skills import GROUPS, held_out, other_questions, training
from lmassay.xray.calibrate.training import SKILLED, accuracy, right_answers, train

FOLDER = Path(__file__).parent / "weights"
#: Of the weights, and of the battery the shipped models have seen nothing of.
SEED = 0


def shipped(group: str) -> Stack:
    """A skilled model of the group, as a stack of one; ``calibration_battery(group, SEED)`` was kept from it."""
    from safetensors.torch import load_file

    found: Stack = load_file(FOLDER / f"{group}.safetensors")
    return found


def made(group: str) -> tuple[Stack, int]:
    """Train the group's model as the shipped one was, and the steps it took."""
    unseen = held_out(group, SEED)
    pairs = [*right_answers(training(group, SEED)), *other_questions(group, SEED)]
    stack, steps = train([SEED], [pairs], lambda now: accuracy(now, unseen) >= SKILLED)
    return stack, steps[0]


def main() -> None:
    """Write all of them."""
    from safetensors.torch import save_file

    FOLDER.mkdir(exist_ok=True)
    for group in GROUPS:
        stack, steps = made(group)
        save_file({name: tensor.contiguous() for name, tensor in stack.items()}, FOLDER / f"{group}.safetensors")
        print(f"{group}: {steps} steps, held out {float(accuracy(stack, held_out(group, SEED))):.3f}")


if __name__ == "__main__":
    main()
