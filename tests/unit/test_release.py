"""What is released, what is refused and why, and that a release never changes."""

import json
import os
import stat
from dataclasses import replace

import pytest

from hallmark import bundle, digest, release, release_checks


@pytest.fixture
def offer(sample, tmp_path):
    """A function that makes a bundle of a changed sample and offers it."""

    def make(name="offer", **changes):
        made = sample(**changes)
        folder = made.write(tmp_path / name)
        return release.Offer(made.target, made.model, folder, made.policies)

    return make


@pytest.fixture
def folder(tmp_path):
    """The release's folder, which nobody has made yet."""
    return tmp_path / "releases" / "1.0-abcdef12"


def reasons(refusal):
    return " ".join(reason["why"] for reason in refusal["reasons"])


def index_of(folder):
    return json.loads((folder / "index.json").read_text())


def state(folder):
    return {path: (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in folder.rglob("*") if path.name != ".lock"}


def edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def change(path, data):
    """Write into a file that is read-only, as anyone who owns it can."""
    path.chmod(0o644)
    path.write_bytes(data)


def reseal(made):
    """Make the manifest fit the files again, as someone who wants a release at any price would."""
    path = made / "manifest.json"
    manifest = json.loads(path.read_text())
    described = digest.describe(made)
    manifest["files"] = {
        name: entry for name, entry in described.items() if name not in ("manifest.json", "SHA256SUMS")
    }
    path.write_text(json.dumps(manifest))
    (made / "SHA256SUMS").write_text(bundle.sums(manifest["files"], path.read_text()))


def test_what_passes_is_published_with_an_index(offer, folder):
    assert release.publish(offer(), folder) is None
    (entry,) = index_of(folder)["published"]
    assert (entry["target"], entry["model"], entry["artifact"]) == ("cpu", "tiny", "tiny/gguf/q8_0")
    assert (folder / "cpu/tiny/model.gguf").read_bytes() == b"weights"
    assert "| [cpu](cpu/tiny/README.md) | tiny | `tiny/gguf/q8_0` |" in (folder / "index.md").read_text()
    latest = folder.with_name("latest")
    assert latest.resolve() == folder
    assert (
        release_checks.verify(folder)
        == release_checks.verify(latest)
        == release_checks.verify(folder / "cpu/tiny")
        == []
    )


def test_again_changes_nothing(offer, folder):
    offered = offer()
    release.publish(offered, folder)
    before = state(folder.parent)
    assert release.publish(offered, folder) is None
    assert state(folder.parent) == before


def test_bundles_of_a_release_add_up_and_other_releases_stay(offer, folder):
    other = folder.with_name("1.0-00000000")
    release.publish(offer("a"), other)
    before = state(other)
    for name, changes in {"b": {"target": "gpu"}, "c": {}, "d": {"model": "mini"}}.items():
        release.publish(offer(name, **changes), folder)
    published = [(entry["target"], entry["model"]) for entry in index_of(folder)["published"]]
    assert published == [("cpu", "mini"), ("cpu", "tiny"), ("gpu", "tiny")]
    assert state(other) == before
    assert folder.with_name("latest").resolve() == folder
    assert release_checks.verify(folder) == release_checks.verify(other) == []


def test_a_refusal_names_each_candidate_with_gate_number_and_limit(offer, folder):
    release.publish(offer("a", target="gpu"), folder)
    refusal = release.publish(offer("b", limit=0.001), folder)
    assert release.describe_refusals([refusal]) == (
        "not released: tiny for cpu\n"
        "  gguf/q4_k_m (fail): kl_mean 0.5 nat > 0.001 (*/*/*)\n"
        "  gguf/q8_0 (fail): kl_mean 0.01 nat > 0.001 (*/*/*)"
    )
    assert index_of(folder)["refused"] == [refusal]
    row = "| cpu | tiny | `gguf/q8_0` | fail | kl_mean 0.01 nat > 0.001 (*/*/*) |"
    assert row in (folder / "index.md").read_text()
    (folder / "cpu/tiny").mkdir(parents=True)  # as Snakemake does for the output of a job
    assert release_checks.verify(folder) == []
    release.publish(offer("c"), folder)
    assert index_of(folder)["refused"] == []


def test_what_is_published_stays_when_a_damaged_bundle_is_offered_again(offer, folder):
    offered = offer()
    release.publish(offered, folder)
    (offered.folder / "model.gguf").write_bytes(b"damaged")
    assert release.publish(offered, folder)["reasons"]
    assert len(index_of(folder)["published"]) == 1
    assert release_checks.verify(folder) == []


def test_a_verdict_of_another_policy_is_refused(offer, folder):
    offered = offer()
    stale = replace(offered, policies=dict.fromkeys(offered.policies, "0" * 64))
    assert "judged by policy" in reasons(release.publish(stale, folder))
    assert not (folder / "cpu").exists()


def test_an_artifact_that_is_no_longer_a_candidate_is_refused(offer, folder):
    other = replace(offer(), policies={"onnx/int8": "0" * 64})
    assert "gguf/q8_0 is not a candidate of cpu" in reasons(release.publish(other, folder))


def test_a_changed_artifact_is_refused(offer, folder):
    offered = offer()
    (offered.folder / "model.gguf").write_bytes(b"weightz")
    assert "model.gguf: 7 bytes" in reasons(release.publish(offered, folder))


@pytest.mark.parametrize("name", ["model.gguf", "README.md", "manifest.json", "SHA256SUMS", "verdict.json"])
def test_a_missing_file_is_refused(offer, folder, name):
    offered = offer()
    (offered.folder / name).unlink()
    assert name in reasons(release.publish(offered, folder))


def test_an_extra_file_or_link_is_refused(offer, folder):
    offered = offer()
    (offered.folder / "extra.so").write_bytes(b"")
    assert "extra.so: not in the manifest" in reasons(release.publish(offered, folder))
    (offered.folder / "extra.so").unlink()
    (offered.folder / "link").symlink_to("/etc/passwd")
    assert "not a regular file" in reasons(release.publish(offered, folder))


def test_a_swapped_artifact_with_fitting_checksums_is_refused(offer, folder):
    offered = offer()
    (offered.folder / "model.gguf").write_bytes(b"weightz")
    reseal(offered.folder)
    assert "its artifact's files have digest" in reasons(release.publish(offered, folder))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"verdict": "fail"}, "its verdict is fail"),
        ({"verdict": "inconclusive"}, "its verdict is inconclusive"),
        ({"gates": []}, "its verdict is pass"),
        ({"artifact": "0" * 64}, "the verdict is on artifact 000000000000, the bundle holds another"),
        ({"target": "gpu"}, "the verdict is on tiny/gguf/q8_0 for gpu"),
        ({"subject": "tiny/gguf/f16"}, "the verdict is on tiny/gguf/f16 for cpu"),
    ],
)
def test_a_verdict_that_is_not_this_bundles_pass_is_refused(offer, folder, changes, message):
    offered = offer()
    edit(offered.folder / "verdict.json", **changes)
    reseal(offered.folder)
    assert message in reasons(release.publish(offered, folder))


def test_a_bundle_of_another_target_is_refused(offer, folder):
    offered = offer()
    assert "the bundle is tiny for cpu" in reasons(release.publish(replace(offered, target="gpu"), folder))


def test_a_release_says_which_came_before_it_from_its_first_bundle_on(offer, folder):
    first = folder.with_name("0.9-00000000")
    release.publish(offer("a"), first)
    release.publish(offer("b", limit=0.001), folder)
    assert "after" not in index_of(folder)  # nothing is published there yet
    release.publish(offer("c"), folder)
    release.publish(offer("d", target="gpu"), folder)
    assert (index_of(first)["after"], index_of(folder)["after"]) == (None, "0.9-00000000")


def test_a_first_release_passes_without_a_number_to_compare_with_and_says_so(offer, folder):
    released = {"absent": "nothing was released of tiny for cpu before version 1.0"}
    assert release.publish(offer(released=released), folder) is None
    readme = (folder / "cpu/tiny/README.md").read_text()
    assert "2 of 2 gates passed; release_decode_ratio does not apply: nothing was released of tiny for cpu" in readme


def test_only_a_gate_against_a_release_may_lack_its_number(offer, folder):
    offered = offer()
    path = offered.folder / "verdict.json"
    verdict = json.loads(path.read_text())
    gates = [{**gate, "verdict": "not_applicable"} for gate in verdict["gates"]]
    for changed in (gates, [*verdict["gates"][1:], gates[0]], []):
        edit(path, gates=changed)
        reseal(offered.folder)
        assert "its verdict is pass" in reasons(release.publish(offered, folder))


def test_what_is_published_is_never_replaced(offer, folder):
    release.publish(offer("a"), folder)
    with pytest.raises(release.ReleaseError, match=r"cpu/tiny/.*: another file .* move .*cpu/tiny away"):
        release.publish(offer("b", weights=b"weightz"), folder)
    assert (folder / "cpu/tiny/model.gguf").read_bytes() == b"weights"
    assert release_checks.verify(folder) == []


def test_a_place_that_lacks_files_of_the_same_bundle_is_filled(offer, folder):
    offered = offer()
    release.publish(offered, folder)
    (folder / "cpu/tiny/manifest.json").unlink()  # as Snakemake does with the output of a job that runs again
    assert release.publish(offered, folder) is None
    assert release_checks.verify(folder) == []


@pytest.mark.parametrize("where", ["index.json", "index.md", "cpu/tiny/manifest.json", "cpu/tiny/LICENSE"])
def test_verify_finds_a_changed_file(offer, folder, where):
    release.publish(offer(), folder)
    path = folder / where
    change(path, path.read_bytes().replace(b"tiny", b"tyni").replace(b"Apache", b"apache"))
    assert release_checks.verify(folder)


def test_verify_finds_extra_and_missing_bundles(offer, folder):
    release.publish(offer(), folder)
    (folder / "stray.txt").write_text("")
    (folder / "cpu/tiny").rename(folder / "cpu/gone")
    text = "\n".join(release_checks.verify(folder))
    for part in ("cpu/gone: not in the index", "stray.txt: not in the index", "cpu/tiny: not a bundle"):
        assert part in text


def test_a_run_finds_what_was_altered_since_it_was_published_and_forgives_what_a_killed_one_left(offer, folder):
    memory = digest.Memory(folder.parent / "digests.sqlite")
    release.publish(offer(), folder)
    assert release_checks.altered(folder, memory) == []
    place = folder / "cpu/tiny"
    (folder / ".partial-cpu-tiny").mkdir()
    hidden = place.rename(folder.parent / "hidden")
    assert release_checks.altered(folder, memory) == []  # named in the index and not moved to its place
    hidden.rename(place)
    weights = place / "model.gguf"
    weights.chmod(0o644)
    weights.write_bytes(b"other")
    assert "model.gguf: 5 bytes" in release_checks.altered(folder, memory)[0]
    weights.write_bytes(b"weights")
    assert release_checks.altered(folder, memory) == []
    (folder / "index.json").unlink()
    assert "not an index" in release_checks.altered(folder, memory)[0]


def test_what_a_killed_publisher_left_is_removed(offer, folder):
    (folder / ".partial-cpu-tiny/x").mkdir(parents=True)
    folder.with_name(".partial-latest").symlink_to("nowhere")
    release.publish(offer(), folder)
    assert not list(folder.parent.rglob(".partial-*"))


def test_a_failed_copy_leaves_nothing_published(offer, folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    offered = offer()
    monkeypatch.setattr("hallmark.bundle.copy_file", full)
    with pytest.raises(OSError, match="No space"):
        release.publish(offered, folder)
    assert list(folder.iterdir()) == []
    assert not folder.with_name("latest").is_symlink()


def test_files_are_readable_whatever_the_umask(offer, folder):
    offered = offer()
    before = os.umask(0o077)
    try:
        release.publish(offered, folder)
    finally:
        os.umask(before)
    assert all(path.stat().st_mode & stat.S_IROTH for path in (folder / "cpu/tiny").rglob("*"))
    assert (folder / "index.json").stat().st_mode & stat.S_IROTH
