"""What a bundle holds, that it checks itself, and what it refuses to be made of."""

import json
import subprocess

import pytest
import yaml

from hallmark import bundle, digest
from hallmark.formats import Usage


def content(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_bundle_holds_all_that_the_target_needs(sample, tmp_path):
    made = sample().write(tmp_path)
    assert set(content(made)) == {
        *("model.gguf", "tokenizer/vocab.txt", "run.py"),
        *("README.md", "MODEL_CARD.md", "LICENSE", "run.json", "verdict.json", "measurements.json"),
        *("provenance.json", "manifest.json", "SHA256SUMS"),
    }
    manifest = json.loads((made / "manifest.json").read_text())
    assert manifest["artifact"]["files"] == ["model.gguf", "tokenizer/vocab.txt"]
    assert manifest["artifact"]["subject"] == "tiny/gguf/q8_0"
    assert set(manifest["files"]) == set(content(made)) - {"manifest.json", "SHA256SUMS"}
    assert json.loads((made / "provenance.json").read_text())["source"]["revision"] == "abc"
    assert json.loads((made / "run.json").read_text())["measured_under"]["threads"] == 2


def test_sha256sum_agrees(sample, tmp_path):
    made = sample().write(tmp_path)
    checked = subprocess.run(["sha256sum", "--strict", "-c", "SHA256SUMS"], cwd=made, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.count(": OK") == len(content(made)) - 1


def test_the_same_inputs_give_the_same_bytes(sample, tmp_path):
    assert content(sample().write(tmp_path / "a")) == content(sample().write(tmp_path / "b"))


def test_the_readme_says_how_to_run_it_with_the_numbers_and_why_not_the_preferred_one(sample, tmp_path):
    text = (sample().write(tmp_path) / "README.md").read_text()
    assert "python ./run.py ./model.gguf" in text
    assert "python -m pip install gguf==0.19.0 'x[y]>1'" in text
    assert "| `kl_mean` | 0.01 nat | at most 0.1 nat | mean KL divergence to the source |" in text
    assert "| `decode_ratio` | 1.52 [1.41, 1.63] |  |" in text
    assert "- `gguf/q4_k_m` (fail): kl_mean 0.5 nat > 0.1 (*/*/*)" in text
    assert "Licence: see LICENSE." in text
    assert "\nMeasured on: A CPU. A CPU with other vector instructions" in text


def test_a_command_may_hold_braces(sample, tmp_path):
    usage = Usage("""echo '{"a": 1}' {folder}""", files={"RUNTIME.md": "From anywhere."})
    made = sample(usage=usage).write(tmp_path)
    assert """echo '{"a": 1}' .\n""" in (made / "README.md").read_text()
    assert "pip install" not in (made / "README.md").read_text()
    assert "Where to get the program: RUNTIME.md.\n" in (made / "README.md").read_text()


def test_the_model_card_keeps_the_front_matter_and_says_what_was_done(sample, tmp_path):
    card = (sample().write(tmp_path) / "MODEL_CARD.md").read_text()
    front_matter, rest = bundle.split_front_matter(card)
    assert yaml.safe_load(front_matter) == {"license": "apache-2.0", "tags": ["x"]}
    assert "This is not the original model" in rest
    assert '- options: `{"type": "Q4_K_M"}`' in rest
    assert rest.rstrip().endswith("# Tiny\n\nA | B")


@pytest.mark.parametrize(
    ("text", "front_matter", "rest"),
    [
        ("# T\n---\nx\n---\n", "", "# T\n---\nx\n---\n"),
        ("---\r\na: 1\r\n---\r\nT\r\n", "a: 1\n", "T\n"),
        ("---\na: 1\n---", "a: 1\n", ""),
        ("---\nnever closed\n", "", "---\nnever closed\n"),
        ("---\na: [\n---\nT\n", "", "```yaml\na: [\n```\nT\n"),
        ("---\njust text\n---\nT\n", "", "```yaml\njust text\n```\nT\n"),
        ("", "", ""),
    ],
)
def test_front_matter(text, front_matter, rest):
    assert bundle.split_front_matter(text) == (front_matter, rest)


def test_a_source_without_a_readme_still_gets_a_card(sample, tmp_path):
    card = (sample(readme=None).write(tmp_path) / "MODEL_CARD.md").read_text()
    assert card.startswith("# tiny/gguf/q8_0\n")


def test_when_nothing_passes_only_the_reasons_are_written(sample, tmp_path):
    made = sample(limit=0.001).write(tmp_path)
    assert list(content(made)) == ["refusal.json"]
    refusal = json.loads((made / "refusal.json").read_text())
    assert [candidate["artifact"] for candidate in refusal["candidates"]] == ["gguf/q4_k_m", "gguf/q8_0"]
    (gate,) = refusal["candidates"][1]["gates"]
    assert (gate["metric"], gate["value"], gate["limit"]) == ("kl_mean", 0.01, {"max": 0.001})


def test_an_edit_of_the_bundle_does_not_reach_the_source(sample, tmp_path):
    made = sample().write(tmp_path)
    with (made / "model.gguf").open("r+b") as file:
        file.write(b"X")
    assert (tmp_path / "source/model.gguf").read_bytes() == b"weights"


@pytest.mark.parametrize("name", ["../out", "/etc/x", "a\\b", "a\nb"])
def test_names_stay_inside_and_readable_for_sha256sum(sample, tmp_path, name):
    with pytest.raises(bundle.BundleError, match="not a name"):
        sample(usage=Usage("x", (), {name: ""})).write(tmp_path)


def test_a_name_that_the_artifact_has_already_is_an_error(sample, tmp_path):
    with pytest.raises(bundle.BundleError, match=r"model\.gguf: the artifact has a file of this name"):
        sample(usage=Usage("x", (), {"model.gguf": "other"})).write(tmp_path)


def test_a_copy_that_differs_from_the_manifest_is_an_error(tmp_path):
    (tmp_path / "a").write_bytes(b"damaged")
    with pytest.raises(bundle.BundleError, match="its manifest says 000000000000"):
        bundle.copy_file(tmp_path / "a", tmp_path / "b", {"size": 7, "sha256": "0" * 64})


def test_copying_without_help_of_the_kernel_gives_the_same(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError

    monkeypatch.setattr("os.copy_file_range", refuse)
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    expected = digest.describe(tmp_path)["a"]
    bundle.copy_file(tmp_path / "a", tmp_path / "deep/b", expected)
    assert digest.describe(tmp_path / "deep")["b"] == expected
