"""What config.json says of tied weights, also where it says nothing."""

from __future__ import annotations

from typing import Any

import pytest

from hallmark.source_settings import is_tied


@pytest.mark.parametrize(
    ("config", "tied"),
    [
        ({"model_type": "llama"}, False),
        ({"model_type": "llama", "tie_word_embeddings": True}, True),
        ({"model_type": "gemma3_text"}, True),
        ({"model_type": "gemma2", "tie_word_embeddings": False}, False),
        ({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}, True),
        ({}, False),
    ],
)
def test_weights_are_tied_when_it_says_so_and_in_gemma_else(config: dict[str, Any], tied: bool) -> None:
    assert is_tied(config) is tied
