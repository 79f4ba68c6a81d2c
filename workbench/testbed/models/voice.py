"""The teacher of the talker: encoder and flow of the pretrained voice, run by onnxruntime at preparation time only."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.errors import MissingPrerequisite
from workbench.testbed import weights
from workbench.testbed.models.rvq import Codebooks

# Outputs of the graph nodes that scale the latent and round the durations; the decoder after them is not run.
_LATENT, _DURATIONS = "/Mul_7_output_0", "/Ceil_output_0"


class VoiceTeacher:
    """Latents and durations of a phrase, without noise: a deterministic function of the phonemes.

    Raises
    ------
    MissingPrerequisite
        The voice, onnx or onnxruntime is not installed.
    """

    def __init__(self) -> None:
        try:
            onnx = importlib.import_module("onnx")
            runtime = importlib.import_module("onnxruntime")
        except ImportError as error:
            raise MissingPrerequisite(
                "onnx and onnxruntime to run the teacher voice", str(error), fix="Install them with `make weights`."
            ) from error
        path, _ = weights.locate("voice")
        model = onnx.load(str(path))
        for name in (_LATENT, _DURATIONS):
            model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session: Any = runtime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def latent(self, phonemes: Sequence[int]) -> tuple[Tensor, list[int]]:
        """Latent frames of shape (frames, channels), and frames per phoneme."""
        latent, durations = self._session.run(
            [_LATENT, _DURATIONS],
            {
                "input": np.array([phonemes], np.int64),
                "input_lengths": np.array([len(phonemes)], np.int64),
                "scales": np.array([0.0, 1.0, 0.0], np.float32),
            },
        )
        return torch.from_numpy(latent[0].T.copy()), durations.reshape(-1).astype(int).tolist()

    def oracle_codes(self, phonemes: Sequence[int], codebooks: Codebooks) -> Tensor:
        """The codes that the teacher itself would have emitted, int64 (n, codebooks): forced tokens for any text."""
        frames, _ = self.latent(phonemes)
        return codebooks.encode(frames)
