"""What happens to the store before a run, and what a clean-up removes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.unit.plans import CONFIG, build, edited, planned

from hallmark import digest, history, store, upkeep
from hallmark.config import ConfigError
from hallmark.plan import Plan


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(upkeep, "available_memory", lambda: 64_000_000_000)
    return planned()


def built(plan: Plan) -> None:
    for node in plan.nodes():
        build(plan, node)


def checked(plan: Plan) -> list[str]:
    return list(upkeep.check_entries(plan, digest.Memory(Path("digests.sqlite"))))


def test_a_whole_store_is_left_alone(plan: Plan) -> None:
    built(plan)
    assert checked(plan) == []
    assert not (plan.root / ".damaged").exists()


def test_a_damaged_entry_is_set_aside_and_named(plan: Plan) -> None:
    built(plan)
    convert = plan.artifacts[0].convert
    file = plan.root / convert.place / "files/file.txt"
    file.chmod(0o644)
    file.write_text("other")
    (message,) = checked(plan)
    assert "file.txt" in message and "will be built again" in message
    assert not convert.manifest(plan.root).exists()
    assert len(list((plan.root / ".damaged").iterdir())) == 1


def test_an_entry_without_its_manifest_is_set_aside_because_snakemake_would_take_it_for_whole(plan: Plan) -> None:
    built(plan)
    convert = plan.artifacts[0].convert
    convert.manifest(plan.root).unlink()
    store.mark(plan.root / convert.place)
    (message,) = checked(plan)
    assert "no manifest.json" in message and "will be built again" in message
    assert not convert.ready(plan.root).exists()


def test_what_another_run_sets_aside_meanwhile_is_no_error(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    built(plan)
    convert = plan.artifacts[0].convert
    (plan.root / convert.place / "files/more.txt").write_text("surplus")
    verify = store.verify

    def slowly(path: Path, memory: digest.Memory | None = None) -> store.Entry:
        try:
            return verify(path, memory)
        except store.Damaged:
            store.set_aside(plan.root, path)  # the other run
            raise

    monkeypatch.setattr(store, "verify", slowly)
    assert len(checked(plan)) == 1
    assert len(list((plan.root / ".damaged").iterdir())) == 1


def test_what_was_made_from_other_bytes_than_its_input_holds_is_set_aside(plan: Plan) -> None:
    built(plan)
    artifact = plan.artifacts[0]
    store.set_aside(plan.root, plan.root / artifact.convert.place)
    build(plan, artifact.convert, {"file.txt": "other bytes under the same key"})
    messages = checked(plan)
    assert any(f"made from other bytes than {artifact.convert.place}" in message for message in messages)
    for node in (artifact.inspect, artifact.measurements["accuracy"], artifact.measurements["speed"]):
        assert not node.manifest(plan.root).exists()
    assert plan.artifacts[1].inspect.manifest(plan.root).exists()


def test_what_cannot_fit_is_said_before_anything_starts(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "available_memory", lambda: 800_000_000)
    with pytest.raises(ConfigError) as error:
        upkeep.before_run(plan, print)
    assert "measure_speed tiny/gguf/f16 needs about" in str(error.value)
    assert "300 MB are available" in str(error.value)
    assert not (plan.root / history.FOLDER).exists()


def test_a_disk_that_is_too_small_is_said_with_what_to_do(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep.shutil, "disk_usage", lambda folder: type("usage", (), {"free": 1_000_000}))
    with pytest.raises(ConfigError, match=r"MB of disk, and 1 MB are free; free some space, run `hallmark gc`"):
        upkeep.before_run(plan, print)


def test_what_lies_behind_a_missing_entry_is_looked_at_again(plan: Plan) -> None:
    built(plan)
    artifact = plan.artifacts[0]
    shutil.rmtree(plan.root / artifact.measurements["speed"].place)
    assert checked(plan) == []
    unmarked = {node.verb for node in plan.nodes() if not node.ready(plan.root).exists()}
    assert unmarked == {"measure_speed", "judge", "select", "report"}
    build(plan, artifact.measurements["speed"])
    assert checked(plan) == []
    assert all(node.ready(plan.root).exists() for node in plan.nodes())


def test_what_is_built_needs_no_memory_and_no_disk(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    built(plan)
    monkeypatch.setattr(upkeep, "available_memory", lambda: 600_000_000)
    upkeep.before_run(plan, print)


def test_a_release_that_is_not_as_it_was_published_stops_the_run(plan: Plan) -> None:
    place = Path("artifacts/releases", plan.release, "cpu-llamacpp/tiny")
    place.mkdir(parents=True)
    upkeep.before_run(plan, print)  # a folder that Snakemake made for an output is no bundle
    (place / "manifest.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"index.json: not an index(.|\n)*restore it, or move artifacts/releases/0-"):
        upkeep.before_run(plan, print)


def test_links_with_names_point_at_what_is_there(plan: Plan) -> None:
    built(plan)
    upkeep.link_readable(plan)
    assert Path("artifacts/tiny/gguf/q8_0/file.txt").read_text().startswith("convert/tiny/gguf/q8_0/")
    assert Path("artifacts/report/file.txt").read_text() == plan.report.place
    assert not Path("artifacts/tiny/gguf/q8_0").readlink().is_absolute()
    variants = {"f16": {}, "q8_0": {"options": {"type": "Q6_K"}}}
    other = planned(edited(CONFIG, "models.tiny.formats.gguf", variants))
    upkeep.link_readable(other)  # not built yet, so the old link stays
    assert Path("artifacts/tiny/gguf/q8_0/file.txt").exists()


def test_a_file_where_a_link_belongs_is_not_overwritten(plan: Plan) -> None:
    built(plan)
    Path("artifacts/report").mkdir()
    with pytest.raises(ConfigError, match="artifacts/report: there is a file or folder"):
        upkeep.link_readable(plan)


def test_a_clean_up_removes_what_no_plan_wants_and_says_how_much(plan: Plan) -> None:
    built(plan)
    history.remember(plan)
    other = planned(edited(CONFIG, "hardware_class", "another"))
    for node in other.nodes():
        if not node.manifest(other.root).exists():
            build(other, node)
    history.remember(other)
    assert list(upkeep.collect_garbage(other, 2, dry_run=False)) == []
    would = list(upkeep.collect_garbage(other, 0, dry_run=True))
    assert [path for path, _ in would] == [path for path, _ in upkeep.collect_garbage(other, 0, dry_run=False)]
    gone = {path.relative_to(plan.root).as_posix() for path, _ in would}
    assert gone == {node.place for node in plan.nodes()} - {node.place for node in other.nodes()}
    assert all(size > 0 for _, size in would)
    assert checked(other) == []


def test_a_clean_up_removes_what_was_set_aside_once(plan: Plan) -> None:
    built(plan)
    aside = store.set_aside(plan.root, plan.root / plan.report.place)
    assert [path for path, _ in upkeep.collect_garbage(plan, 1, dry_run=False)] == [aside]
    assert not aside.exists()


def test_a_clean_up_of_a_store_among_other_folders_leaves_those_alone(plan: Plan) -> None:
    built(plan)
    others = [
        plan.root / "releases/1-abc/cpu/tiny",
        plan.root / "store/convert/tiny/0123456789ab",
        plan.root / "report",
    ]
    for other in others:
        other.mkdir(parents=True, exist_ok=True)
        (other / "manifest.json").write_text("{}")
    assert list(upkeep.collect_garbage(plan, 0, dry_run=False)) == []
    assert all((other / "manifest.json").exists() for other in others)


def test_a_clean_up_leaves_what_is_being_written_and_what_lies_inside_an_entry(plan: Plan) -> None:
    place = plan.root / plan.report.place
    with store.writing(plan.root, place, {"inputs": {}}) as draft:
        (draft.files / "deep").mkdir()
        (draft.files / "deep/manifest.json").write_text("{}")
        (draft.folder / "ready").mkdir()
        (draft.folder / "ready/manifest.json").write_text("{}")
        assert list(upkeep.collect_garbage(plan, 1, dry_run=False)) == []
        (draft.folder / "ready/manifest.json").unlink()
        (draft.folder / "ready").rmdir()
    assert list(upkeep.collect_garbage(plan, 1, dry_run=False)) == []
    store.verify(place)
