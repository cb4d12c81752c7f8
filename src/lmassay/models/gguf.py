"""GGUF files, converted once to a safetensors folder: parsing their vocabulary takes far longer than loading."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from lmassay.errors import FAILED_PART_WAY, LmassayError
from lmassay.storage.cache import made_once
from lmassay.storage.fingerprint import remembered_sha256

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Part of the cache key: raise it when the conversion changes.
CONVERSION = 1


def converted(gguf: Path) -> Path:
    """The safetensors folder of a GGUF file, dequantised to float32, tensors bit-identical to transformers' own.

    Raises
    ------
    LmassayError
        ``model-files-broken`` when the file cannot be read to its end, ``model-not-supported`` for a family that
        transformers cannot read from GGUF.
    """
    return made_once(f"converted/{remembered_sha256(gguf)[:16]}-{CONVERSION}", lambda folder: _convert(gguf, folder))


def _check_complete(path: Path) -> None:
    """Every tensor the header names must lie inside the file."""
    from gguf import GGUFReader

    try:
        tensors = GGUFReader(str(path)).tensors
        size = path.stat().st_size
        whole = all(int(t.data_offset) + int(t.n_bytes) <= size for t in tensors) and bool(tensors)
    except (ValueError, KeyError, IndexError, OSError, UnicodeDecodeError) as error:
        raise _broken(path, str(error).splitlines()[0] if str(error) else type(error).__name__) from error
    if not whole:
        raise _broken(path, "it ends before its last tensor")


def _broken(path: Path, why: str) -> LmassayError:
    return LmassayError("model-files-broken", f"{path.name} is not a whole GGUF file: {why}", "fetch the file again")


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    _check_complete(gguf)

    # transformers names the file after its folder, so the cache's own file name does not matter.
    place = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    try:
        tokenizer = AutoTokenizer.from_pretrained(**place)
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32)
    except (ValueError, KeyError, NotImplementedError) as error:
        raise LmassayError(
            "model-not-supported",
            f"{gguf.name}: {str(error).splitlines()[0]}",
            "use the model's safetensors folder instead",
            exit_status=FAILED_PART_WAY,
        ) from error
    # save_pretrained refuses a model that still says it is quantised; the weights are plain float32 by now.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    note = {"source_sha256": remembered_sha256(gguf), "quantised": sorted(_tensor_types(gguf))}
    (folder / "lmassay.json").write_text(json.dumps(note))
    shutil.rmtree(folder / ".cache", ignore_errors=True)


def _tensor_types(gguf: Path) -> set[str]:
    from gguf import GGUFReader

    return {t.tensor_type.name for t in GGUFReader(str(gguf)).tensors}
