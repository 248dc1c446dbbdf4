"""The lock: what it pins, what it refuses, how it is written, and what `hallmark lock` says."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from hallmark import hub, lock, sources
from hallmark.config import ConfigError

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 4,
    "hidden_size": 8,
    "num_hidden_layers": 1,
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}}')
    (folder / "README.md").write_text("card")
    tensors = {"a": np.zeros((4, 8), np.float32), "b": np.zeros(8, np.float16)}
    save_file(tensors, folder / "model.safetensors")
    return folder


def config(models: dict[str, Any] | None = None, data: dict[str, Any] | None = None) -> Any:
    """What `lock_sources` reads of a config."""
    return SimpleNamespace(
        models={
            name: SimpleNamespace(source=source, allow_remote_code=False) for name, source in (models or {}).items()
        },
        data={name: SimpleNamespace(source=source) for name, source in (data or {}).items()},
    )


@pytest.fixture
def wanted(model: Path) -> Any:
    source = sources.Path(folder=str(model))
    return config({"tiny": source}, {"text": source.model_copy(update={"files": ("tokenizer.json",)})})


def test_pins_every_file_with_the_facts_of_the_checkpoint(wanted: Any, model: Path, tmp_path: Path) -> None:
    found, lines = lock.lock_sources(wanted, lock.Lock(), tmp_path)
    entry = found.models["tiny"]
    assert set(entry.files) == {"config.json", "tokenizer.json", "README.md", "model.safetensors"}
    assert entry.files["README.md"].sha256 == hashlib.sha256(b"card").hexdigest()
    assert set(entry.part("docs")) == {"README.md"}
    assert set(entry.part("data")) == set(entry.files)
    assert entry.facts == {
        "architecture": "LlamaForCausalLM",
        "model_type": "llama",
        "parameters": 40,
        "vocab_size": 4,
        "hidden": 8,
        "layers": 1,
        "weight_bytes": 4 * 32 + 2 * 8,
        "largest": 32,
        "dtype": "float32",
    }
    assert set(found.data["text"].files) == {"tokenizer.json"}
    assert [line[:2] for line in lines] == ["+ ", "+ "]


def test_says_which_command_pins_a_missing_or_other_source(wanted: Any, tmp_path: Path) -> None:
    source = wanted.models["tiny"].source
    assert lock.check("models", "tiny", source, lock.Lock()) == [
        "models.tiny: no entry; pin it with: hallmark lock tiny"
    ]
    found, _ = lock.lock_sources(wanted, lock.Lock(), tmp_path)
    assert lock.check("models", "tiny", source, found) == []
    (other,) = lock.check("models", "tiny", sources.Hub(repo="a/b"), found)
    assert "the config has hub a/b at main; pin it anew with: hallmark lock tiny" in other
    (patterns,) = lock.check("models", "tiny", source.model_copy(update={"files": ("*",)}), found)
    assert "with other `files`" in patterns


def test_shows_what_changed_and_only_pins_what_it_is_told(wanted: Any, model: Path, tmp_path: Path) -> None:
    old, _ = lock.lock_sources(wanted, lock.Lock(), tmp_path)
    assert lock.lock_sources(wanted, old, tmp_path, ["tiny"])[1] == []
    (model / "README.md").write_text("another card")
    assert lock.lock_sources(wanted, old, tmp_path)[1] == []
    (line,) = lock.lock_sources(wanted, old, tmp_path, ["tiny"])[1]
    assert line.startswith("~ models.tiny: README.md: ")
    (model / "README.md").unlink()
    (line,) = lock.lock_sources(wanted, old, tmp_path, ["tiny"])[1]
    assert line.endswith("-> not there")


def test_keeps_what_another_config_pinned(wanted: Any, tmp_path: Path) -> None:
    old, _ = lock.lock_sources(wanted, lock.Lock(), tmp_path)
    new, lines = lock.lock_sources(config(), old, tmp_path)
    assert (new, lines) == (old, [])


def test_unknown_names_and_sources_that_cannot_be_had_are_said(wanted: Any, model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no model or data 'tyni', have text, tiny"):
        lock.lock_sources(wanted, lock.Lock(), tmp_path, ["tyni"])
    (model / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"models\.tiny: tokenizer\.json: missing"):
        lock.lock_sources(wanted, lock.Lock(), tmp_path, ["tiny"])
    shutil.rmtree(model)
    with pytest.raises(ConfigError, match=r"models\.tiny: folder .*: no such folder"):
        lock.lock_sources(wanted, lock.Lock(), tmp_path, ["tiny"])


def test_a_hub_entry_holds_the_commit_and_what_was_asked(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "commit", lambda repo, revision: "a" * 40)
    monkeypatch.setattr(hub, "paths", lambda repo, revision: [path.name for path in model.iterdir()])
    monkeypatch.setattr(hub, "open_file", lambda repo, revision, path: (model / path).open("rb"))
    source = sources.Hub(repo="org/tiny")
    found, _ = lock.lock_sources(config({"tiny": source}), lock.Lock(), tmp_path)
    entry = found.models["tiny"]
    assert isinstance(entry.source, sources.Hub)
    assert (entry.source.revision, entry.revision) == ("a" * 40, "main")
    for asked, fits in (("main", True), ("a" * 40, True), ("b" * 40, False)):
        complaints = lock.check("models", "tiny", sources.Hub(repo="org/tiny", revision=asked), found)
        assert (complaints == []) == fits


def test_the_file_is_stable_and_says_the_same_when_read(wanted: Any, tmp_path: Path) -> None:
    found, _ = lock.lock_sources(wanted, lock.Lock(), tmp_path)
    path = tmp_path / "config/lock.yaml"
    lock.write(found, path)
    text = path.read_text()
    assert lock.read(path) == found
    again = lock.Lock(models=dict(reversed(found.models.items())), data=found.data)
    assert lock.dump(again) == text
    assert [line for line in text.splitlines() if "README.md" in line] == [
        f"      README.md: {{size: 4, sha256: {hashlib.sha256(b'card').hexdigest()}}}"
    ]
    assert sorted(file.name for file in path.parent.iterdir()) == ["lock.yaml"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_no_file_is_an_empty_lock_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lock.yaml"
    assert lock.read(path) == lock.Lock()
    path.write_text("version: 2\n")
    with pytest.raises(ConfigError, match=r"lock\.yaml: version: .*remove it .*hallmark lock"):
        lock.read(path)
    path.write_text("models: {tiny: {source: {kind: path, folder: x}, files: {a: {size: 1, sha256: no}}}}\n")
    with pytest.raises(ConfigError, match=r"models\.tiny\.files\.a\.sha256"):
        lock.read(path)


def test_code_of_a_models_own_is_refused_or_pinned_where_it_is_allowed(
    wanted: Any, model: Path, tmp_path: Path
) -> None:
    described = {**CONFIG, "auto_map": {"AutoModelForCausalLM": "modeling_own.OwnModel"}}
    (model / "config.json").write_text(json.dumps(described))
    (model / "modeling_own.py").write_text("")
    with pytest.raises(ConfigError, match=r"models\.tiny: config\.json: asks for code of its own.*allow_remote_code"):
        lock.lock_sources(wanted, lock.Lock(), tmp_path)
    wanted.models["tiny"].allow_remote_code = True
    found, _ = lock.lock_sources(wanted, lock.Lock(), tmp_path)
    assert "modeling_own.py" in found.models["tiny"].files
    into = tmp_path / "copy"
    sources.fetch(found.models["tiny"].source, found.models["tiny"].part("weights"), into, "weights", tmp_path)
    assert (into / "modeling_own.py").exists()


def test_rotary_scaling_is_a_fact_that_the_plan_can_use(wanted: Any, model: Path, tmp_path: Path) -> None:
    (model / "config.json").write_text(json.dumps({**CONFIG, "rope_scaling": {"rope_type": "dynamic", "factor": 2}}))
    found, _ = lock.lock_sources(wanted, lock.Lock(), tmp_path)
    assert found.models["tiny"].facts["rope"] == ["dynamic"]
