"""Which release gates compare with, and that none which should be there counts as none."""

import json
import shutil

import pytest

from hallmark import last_release, release, toolchains
from hallmark.config import ConfigError
from hallmark.last_release import LastReleases, Released

ABSENT = "nothing was released of tiny for cpu before version {}"


@pytest.fixture
def publish(sample, tmp_path):
    """A function that publishes a bundle of other weights into a release of this name."""
    made = iter(range(100))

    def run(name, **changes):
        bundled = sample(**{"weights": name.encode(), **changes})
        folder = bundled.write(tmp_path / f"made{next(made)}")
        release.publish(
            release.Offer(bundled.target, bundled.model, folder, bundled.policies), tmp_path / "releases" / name
        )
        return tmp_path / "releases" / name

    return run


@pytest.fixture
def find(tmp_path):
    """A function that looks up what a version's gates compare with, as a plan made anew would: the release's name, or
    why there is none."""

    def run(version, against=None, target="cpu", model="tiny"):
        releases = LastReleases(tmp_path / "releases", version, against, tmp_path / "digests.sqlite")
        found = releases.find(target, model)
        return found.release if isinstance(found, Released) else found

    return run


def test_before_the_first_release_there_is_none_and_the_first_one_changes_nothing(publish, find):
    assert find("1") == ABSENT.format("1")
    publish("1-aaaaaaaa")
    publish("1-bbbbbbbb")
    assert find("1") == ABSENT.format("1")


def test_a_version_compares_with_what_was_last_before_it_whatever_it_publishes(publish, find):
    publish("1-aaaaaaaa")
    publish("1-bbbbbbbb")
    assert find("2") == "1-bbbbbbbb"
    publish("2-cccccccc")
    publish("2-dddddddd")
    assert (find("2"), find("3")) == ("1-bbbbbbbb", "2-dddddddd")
    publish("3-eeeeeeee")
    assert [find(version) for version in "123"] == [ABSENT.format("1"), "1-bbbbbbbb", "2-dddddddd"]


def test_a_version_may_be_gone_back_to(publish, find):
    publish("1-aaaaaaaa")
    publish("2-bbbbbbbb")
    publish("1-cccccccc")
    assert (find("1"), find("2"), find("3")) == (ABSENT.format("1"), "1-aaaaaaaa", "1-cccccccc")


def test_what_a_release_did_not_take_is_looked_for_in_the_ones_before(publish, find):
    publish("1-aaaaaaaa")
    publish("2-bbbbbbbb", target="gpu")
    publish("2-bbbbbbbb", limit=0.001)  # refused
    assert find("3") == "1-aaaaaaaa"
    assert find("3", target="gpu") == "2-bbbbbbbb"
    assert find("3", model="mini") == "nothing was released of mini for cpu before version 3"


def test_what_is_found_is_what_was_published(publish, tmp_path):
    publish("1-aaaaaaaa")
    found = LastReleases(tmp_path / "releases", "2", None, tmp_path / "digests.sqlite").find("cpu", "tiny")
    assert (found.subject, found.bytes) == ("tiny/gguf/q8_0", len(b"1-aaaaaaaa") + 4)
    assert found.digest == json.loads((tmp_path / "releases/latest/index.json").read_text())["published"][0]["digest"]


def change(path):
    path.chmod(0o644)
    path.write_bytes(b"other" + path.read_bytes()[5:])


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda one: shutil.rmtree(one), "1-aaaaaaaa: was released and has no index.json"),
        (lambda one: change(one / "index.json"), "1-aaaaaaaa: was released and has no index.json"),
        (lambda one: shutil.rmtree(one / "cpu"), "1-aaaaaaaa/cpu/tiny: not a bundle"),
        (lambda one: change(one / "cpu/tiny/model.gguf"), "model.gguf: 10 bytes"),
        (lambda one: change(one / "cpu/tiny/manifest.json"), "1-aaaaaaaa/cpu/tiny: not a bundle"),
        (lambda one: (one / "cpu/tiny/LICENSE").unlink(), "LICENSE: missing"),
    ],
)
@pytest.mark.parametrize("later", [False, True])
def test_one_that_is_gone_or_damaged_is_no_first_release(publish, find, harm, says, later):
    first = publish("1-aaaaaaaa")
    if later:
        publish("2-bbbbbbbb")
    harm(first)
    with pytest.raises(ConfigError) as error:
        find("2")
    assert says in str(error.value)
    assert "`release.against`" in str(error.value)


def test_a_bundle_that_its_index_does_not_name_is_no_first_release(publish, find):
    index = publish("1-aaaaaaaa") / "index.json"
    listed = json.loads(index.read_text())
    index.chmod(0o644)
    index.write_text(json.dumps({**listed, "published": []}))
    with pytest.raises(ConfigError, match="1-aaaaaaaa/cpu/tiny: not in the index"):
        find("2")


def test_releases_in_an_order_that_nothing_tells_are_no_first_release(publish, find, tmp_path):
    publish("1-aaaaaaaa")
    (tmp_path / "releases/latest").unlink()
    with pytest.raises(ConfigError, match="in which order 1-aaaaaaaa were released"):
        find("2")
    publish("2-bbbbbbbb")  # it cannot tell what came before
    assert "after" not in json.loads((tmp_path / "releases/2-bbbbbbbb/index.json").read_text())
    with pytest.raises(ConfigError, match="in which order"):
        find("2")
    assert find("2", against="1-aaaaaaaa") == "1-aaaaaaaa"


def test_an_own_release_that_is_gone_hides_what_came_before(publish, find):
    publish("1-aaaaaaaa")
    shutil.rmtree(publish("2-bbbbbbbb"))
    with pytest.raises(ConfigError, match="2-bbbbbbbb: was released and has no"):
        find("2")
    assert find("3", against="1-aaaaaaaa") == "1-aaaaaaaa"


def test_a_release_may_be_named(publish, find):
    for name in ("1-aaaaaaaa", "2-bbbbbbbb"):
        publish(name)
    assert find("3", against="1-aaaaaaaa") == "1-aaaaaaaa"
    assert find("3", against="1-aaaaaaaa", target="gpu") == "release 1-aaaaaaaa has no tiny for gpu"
    with pytest.raises(ConfigError, match=r"release\.against: no release '0-aaaaaaaa', have 1-aaaaaaaa, 2-bbbbbbbb"):
        find("3", against="0-aaaaaaaa")


def test_the_files_of_a_release_are_read_once(publish, find, tmp_path, monkeypatch):
    publish("1-aaaaaaaa")
    find("2")
    weights, of_file = tmp_path / "releases/1-aaaaaaaa/cpu/tiny/model.gguf", last_release.digest.of_file
    read = []
    monkeypatch.setattr("hallmark.digest.of_file", lambda path: read.append(path) or of_file(path))
    assert find("2") == "1-aaaaaaaa"
    assert weights not in read


def test_a_toolchain_that_nobody_has_is_named_with_what_to_do(publish, tmp_path, monkeypatch):
    monkeypatch.setenv("HALLMARK_CACHE", str(tmp_path / "cache"))
    known = [toolchains.get(name) for name in ("torch", "onnx")]
    components = {"toolchains": {"worker": "0" * 16}, "recipe": {}}
    publish("1-aaaaaaaa", components=components)
    found = LastReleases(tmp_path / "releases", "2", None, tmp_path / "digests.sqlite").find("cpu", "tiny")
    with pytest.raises(ConfigError, match="the toolchain that it ran in \\(0000000000000000\\) is not in"):
        last_release.runtime(found, known)
    kept = tmp_path / "cache/toolchains/llama_cpp-0123456789ab"
    kept.mkdir(parents=True)
    made = {"digest": "0" * 64, "platform": toolchains.local_platform()}
    (kept / "toolchain.json").write_text(json.dumps(made))
    assert last_release.runtime(found, known) == (None, kept)
    publish("2-bbbbbbbb", components={**components, "toolchains": {"worker": known[1].digest[:16]}})
    found = LastReleases(tmp_path / "releases", "3", None, tmp_path / "digests.sqlite").find("cpu", "tiny")
    assert last_release.runtime(found, known) == (known[1], known[1].folder)
