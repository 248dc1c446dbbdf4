"""All defects of stage `files`: of weights in every format, and of what each format says beside them."""

from __future__ import annotations

from tests.mutations import carried_artifacts, gguf_artifacts, onnx_artifacts, openvino_artifacts, weight_artifacts
from tests.mutations.catalogue import Mutation

MUTATIONS: tuple[Mutation, ...] = (
    *weight_artifacts.MUTATIONS,
    *gguf_artifacts.MUTATIONS,
    *carried_artifacts.MUTATIONS,
    *onnx_artifacts.MUTATIONS,
    *openvino_artifacts.MUTATIONS,
)
