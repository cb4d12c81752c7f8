"""Open a model from wherever it is: a hub id, a folder, a GGUF file, a bundled name, or an object in hand."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from lmassay.errors import FAILED_PART_WAY, LmassayError, nearest
from lmassay.models.anatomy import take_apart
from lmassay.models.check import self_check
from lmassay.models.fingerprint import config_digest, state_digest, tokenizer_digest
from lmassay.models.gguf import converted
from lmassay.models.language_model import Fingerprint, LanguageModel
from lmassay.models.tokens import TokenizerView, view
from lmassay.storage.fetch import BUNDLED, fetch_gguf
from lmassay.storage.fingerprint import combined, remembered_sha256

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def open_model(
    source: str | Path | PreTrainedModel,
    *,
    tokenizer: PreTrainedTokenizerBase | str | Path | None = None,
    revision: str | None = None,
    device: str | None = None,
    dtype: str | torch.dtype | None = None,
    device_map: str | dict[str, Any] | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    accept_license: bool = False,
) -> LanguageModel:
    """Open and self-check a decoder.

    Parameters
    ----------
    source : str, Path or PreTrainedModel
        A bundled name, a local folder, a ``.gguf`` file, a hub id, or a model already in memory (moved nowhere and
        left in its own dtype unless asked).
    tokenizer : optional
        Needed with a model object; else read from the source.
    revision : str, optional
        Branch, tag or commit on the hub.
    dtype : str or torch.dtype, optional
        Of the body; float32 by default. The head runs in float32 or wider whatever it is.
    allow_pickle, trust_remote_code : bool
        Both run code that comes with the model, so both are off.

    Raises
    ------
    LmassayError
        ``model-not-found``, ``model-files-broken``, ``unsafe-weights``, ``model-not-supported``,
        ``network-unavailable``, ``licence-not-accepted``, ``tokenizer-not-usable``, ``model-failed-self-check``.
    """
    wanted = _dtype(dtype)
    source = _without_adapter_wrapper(source)
    loading = {"trust_remote_code": trust_remote_code, "revision": revision}
    notes: list[str] = []
    if isinstance(source, PreTrainedModel):
        hf, name = source, source.config.name_or_path or type(source).__name__
        if tokenizer is None:
            raise LmassayError("tokenizer-not-usable", "a model object came without a tokenizer", "pass tokenizer=…")
        if wanted is not None:
            hf = hf.to(wanted)
        weights = None
    else:
        name = str(source)
        place, notes = _locate(name, accept_license=accept_license)
        if tokenizer is None:
            tokenizer = place
        with _clear_errors(name, place):
            weights = _weights_digest(place, revision, allow_pickle=allow_pickle)
            hf, loaded = AutoModelForCausalLM.from_pretrained(
                place,
                dtype=wanted or torch.float32,
                device_map=device_map,
                use_safetensors=None if allow_pickle else True,
                output_loading_info=True,
                **loading,
            )
            _check_loaded(name, loaded)
    if device is not None and device_map is None:
        hf = hf.to(_device(device))
    if isinstance(tokenizer, (str, Path)):
        with _clear_errors(name, str(tokenizer)):
            tokenizer = AutoTokenizer.from_pretrained(tokenizer, **loading)
    hf.eval().requires_grad_(False)
    tokens = view(tokenizer)
    model = LanguageModel(
        name=name,
        hf=hf,
        anatomy=take_apart(hf),
        tokens=tokens,
        fingerprint=Fingerprint(weights or state_digest(hf), tokenizer_digest(tokens), config_digest(hf)),
        revision=revision,
        context_length=_context_length(hf),
        notes=tuple(notes),
        window=_window(hf),
    )
    _check_vocabulary(model)
    checked, _ = self_check(model)
    return checked


def open_tokenizer(
    source: str | Path, *, revision: str | None = None, trust_remote_code: bool = False, accept_license: bool = False
) -> TokenizerView:
    """The tokenizer of a model alone, its weights left where they are; arguments and errors as in `open_model`."""
    name = str(source)
    place, _ = _locate(name, accept_license=accept_license)
    with _clear_errors(name, place):
        loaded = AutoTokenizer.from_pretrained(place, revision=revision, trust_remote_code=trust_remote_code)
    return view(loaded)


def _without_adapter_wrapper(source: Any) -> Any:
    """The model inside a peft wrapper, whose adapters live inside the model's own modules."""
    if isinstance(source, PreTrainedModel) or not hasattr(source, "get_base_model"):
        return source
    if getattr(getattr(source, "active_peft_config", None), "is_prompt_learning", False):
        raise LmassayError(
            "model-not-supported",
            f"{type(source).__name__}: its adapter puts learned tokens before the prompt",
            "pass its base model to measure that alone",
        )
    return source.get_base_model()


def _check_loaded(name: str, loaded: dict[str, Any]) -> None:
    """Refuse files that lack weights: transformers fills them with random numbers, and only warns."""
    lacking = sorted([*loaded["missing_keys"], *(str(key[0]) for key in loaded["mismatched_keys"])])
    if lacking:
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        raise LmassayError(
            "model-files-broken",
            f"{name}: its files hold no fitting weights for {', '.join(lacking[:3])}{more}",
            "fetch the files again, or choose a model with a language-modelling head",
        )


def _dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise LmassayError("bad-request", f"unknown dtype {dtype!r}", nearest(dtype, DTYPES))
    return DTYPES[dtype]


def _device(device: str) -> torch.device:
    try:
        found = torch.device(device)
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).splitlines()[0]
        raise LmassayError("bad-request", f"device {device!r} is not usable: {why}", "use --device cpu") from error
    return found


def _locate(name: str, *, accept_license: bool) -> tuple[str, list[str]]:
    """A folder or hub id to load from, and what must be said beside every figure."""
    if name in BUNDLED:
        bundled = BUNDLED[name]
        folder = converted(fetch_gguf(bundled, accept_license=accept_license))
        return str(folder), [f"{bundled.title}; licence {bundled.licence}"]
    path = Path(name).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise LmassayError("model-not-found", f"no file {name}", "check the path")
        folder = converted(path)
        types = json.loads((folder / "lmassay.json").read_text())["quantised"]
        return str(folder), [f"dequantised from GGUF ({', '.join(types)})"]
    if path.is_dir():
        return str(path), []
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise LmassayError(
            "model-not-found",
            f"no bundled model or folder {name!r}, and a hub id is owner/name",
            nearest(name, BUNDLED),
        )
    return name, []


def _weights_digest(place: str, revision: str | None, *, allow_pickle: bool) -> str | None:
    """Digest of a local folder's weight files; None for a hub id, whose weights are hashed once loaded."""
    folder = Path(place)
    if not folder.is_dir():
        return None
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        pickled = [*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth")]
        if pickled and not allow_pickle:
            raise LmassayError(
                "unsafe-weights",
                f"{place} holds only pickled weights ({pickled[0].name})",
                "convert them to safetensors, or pass --allow-pickle if you trust their source",
            )
        if not pickled:
            raise LmassayError(
                "model-files-broken", f"{place} holds no weights", "put *.safetensors beside config.json"
            )
        files = pickled
    return combined((file.name, remembered_sha256(file)) for file in files)


@contextmanager
def _clear_errors(name: str, place: str) -> Iterator[None]:
    """Turn what transformers and safetensors raise about files into one line."""
    transformers.logging.disable_progress_bar()
    # Both warn at length (of retries, of missing weights) before they fail; the one line says it.
    talkers = [logging.getLogger(talker) for talker in ("huggingface_hub", "transformers")]
    levels = [talker.level for talker in talkers]
    for talker in talkers:
        talker.setLevel(logging.ERROR)
    try:
        yield
    except LmassayError:
        raise
    except Exception as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        if "Unrecognized configuration class" in why:
            raise LmassayError(
                "model-not-supported", f"{name} is no decoder-only language model", "choose a decoder-only model"
            ) from error
        if "does not recognize this architecture" in why:
            raise LmassayError(
                "model-not-supported",
                f"{name}: the installed transformers does not know its architecture",
                "upgrade transformers, or choose another model",
            ) from error
        if Path(place).exists():
            raise LmassayError("model-files-broken", f"{name}: {why}", "check the model's files") from error
        if _offline(error):
            raise LmassayError(
                "network-unavailable",
                f"{name} is not on this machine and the model hub cannot be reached",
                "pass a local folder, or one of the bundled models: " + ", ".join(BUNDLED),
                exit_status=FAILED_PART_WAY,
            ) from error
        raise LmassayError("model-not-found", f"{name}: {why}", nearest(name, BUNDLED)) from error
    finally:
        for talker, level in zip(talkers, levels, strict=True):
            talker.setLevel(level)


def _offline(error: BaseException | None) -> bool:
    """Whether a failed connection is among the causes."""
    if os.environ.get("HF_HUB_OFFLINE", "") in ("1", "true", "TRUE", "ON"):
        return True
    words = ("connect", "offline", "resolve", "timed out", "network", "localentrynotfound")
    while error is not None:
        text = f"{type(error).__name__} {error}".lower()
        if any(word in text for word in words):
            return True
        error = error.__cause__ or error.__context__
    return False


def _context_length(hf: PreTrainedModel) -> int | None:
    config = hf.config.get_text_config()
    if getattr(config, "alibi", False) or config.model_type in ("bloom", "mpt"):
        return None
    length = getattr(config, "max_position_embeddings", None)
    return int(length) if length else None


def _window(hf: PreTrainedModel) -> int | None:
    config = hf.config.get_text_config()
    types = getattr(config, "layer_types", None)
    if types is not None and "sliding_attention" not in types:
        return None
    if types is None and getattr(config, "use_sliding_window", True) is False:
        return None
    for name in ("sliding_window", "window_size", "attention_chunk_size"):
        window = getattr(config, name, None)
        if window:
            return int(window)
    return None


def _check_vocabulary(model: LanguageModel) -> None:
    known, rows = len(model.tokens.hf), model.anatomy.embedding.num_embeddings
    if known > rows:
        raise LmassayError(
            "tokenizer-not-usable",
            f"the tokenizer has {known} tokens but the model only {rows}",
            "pass the tokenizer the model was trained with",
        )
