"""The reply as a JSON schema, for providers that can hold a model to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lmassay.cot.monitors.asking import Asking
from lmassay.cot.monitors.templates import BINARY, DISTRIBUTION, Template

#: Inspect's providers that pass a schema on; asked through any other, a model is told the form in words alone.
PROVIDERS = ("anthropic", "google", "grok", "lmassay", "mistral", "openai", "openrouter", "sglang", "vllm")


def holds_to_schema(model: str) -> bool:
    """Whether the provider of a model named as ``provider/name`` takes a schema."""
    return model.partition("/")[0] in PROVIDERS


def reply_schema(
    template: Template, asking: Asking, *, letters: Sequence[str] = (), n_region: int = 0
) -> dict[str, Any]:
    """JSON schema of the reply to one item."""
    number = {"type": "number", "minimum": 0, "maximum": 1}
    if template.kind == DISTRIBUTION:
        properties: dict[str, Any] = {letter: dict(number) for letter in letters}
    elif template.kind != BINARY:
        properties = {"sentences": {"type": "array", "items": {"type": "integer"}}}
    elif asking.confidence:
        properties = {"probability": number}
    else:
        properties = {"answer": {"type": "string", "enum": list(template.words)}}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def whole_replies(schema: dict[str, Any]) -> tuple[str, ...]:
    """Every reply a schema of one field allows, a probability in steps of a hundredth; none where they are too many."""
    properties = schema.get("properties") or {}
    if schema.get("type") != "object" or len(properties) != 1:
        return ()
    ((name, field),) = properties.items()
    if field.get("type") == "string" and field.get("enum"):
        return tuple(f'{{"{name}": "{word}"}}' for word in field["enum"])
    if field.get("type") == "number" and (field.get("minimum"), field.get("maximum")) == (0, 1):
        return tuple(f'{{"{name}": {i / 100:.2f}}}' for i in range(101))
    return ()
