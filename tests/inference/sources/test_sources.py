"""Sources of models: over fsspec's memory and files, and a folder. MinIO and MLflow have files of their own."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.errors import ModelConfigError, SourceUnavailable
from millstream.inference.sources import folder
from millstream.inference.sources.aliases import parsed_aliases
from millstream.inference.sources.checksums import CHECKSUMS_FILE, sha256_of, sums_of
from millstream.inference.sources.choice import Repository, open_source
from millstream.inference.sources.client_options import nested
from millstream.inference.sources.folder import FolderSource
from millstream.inference.sources.listing import folders_in
from millstream.inference.sources.object_store import ObjectStore
from millstream.inference.sources.progress import BoundedCalls, Progress
from millstream.inference.sources.secrets import redacted
from millstream.inference.sources.start import fetch_at_start
from millstream.inference.sources.wanted import wanted_version
from tests.faults.hung_folder import HungFolder
from tests.inference.sources.places import Place, in_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.inference.sources.interface import ModelSource


@pytest.fixture(params=["memory", "file", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A repository, and `source_of` reads it."""
    return in_memory() if request.param == "memory" else Place(f"file://{tmp_path}/repository")


@pytest.fixture
def source(request: pytest.FixtureRequest, place: Place, tmp_path: Path) -> ModelSource:
    if "folder" in request.node.name.split("[")[-1]:
        return FolderSource(tmp_path / "repository")
    return place.source(tmp_path / "cache")


def fingerprint(source: ModelSource, version: int) -> str:
    return source.versions("m")[version]


def test_versions_are_fetched_whole(place: Place, source: ModelSource) -> None:
    place.put("m/1/model.onnx", b"one")
    place.put("m/2/model.onnx", b"two")
    place.put("m/2/deep/vocabulary.txt", b"a\nb\n")
    place.put("m/007/model.onnx", b"no version")
    place.put("m/notes.txt", b"no version")
    place.put("other/9/model.onnx", b"another model")
    assert sorted(source.versions("m")) == [1, 2]
    folder = source.fetch("m", 2)
    assert (folder / "model.onnx").read_bytes() == b"two"
    assert (folder / "deep" / "vocabulary.txt").read_bytes() == b"a\nb\n"
    assert (source.fetch("m", 1) / "model.onnx").read_bytes() == b"one"
    source.release(folder)


def test_fingerprint_changes_with_any_file_and_no_other_version(place: Place, source: ModelSource) -> None:
    place.put("m/1/model.onnx", b"one")
    place.put("m/2/model.onnx", b"two")
    first, second = fingerprint(source, 1), fingerprint(source, 2)
    assert fingerprint(source, 1) == first
    place.put("m/1/model.onnx", b"One")
    changed = fingerprint(source, 1)
    assert changed != first
    place.put("m/1/config.yaml", b"inputs: []")
    assert fingerprint(source, 1) not in {first, changed}
    assert fingerprint(source, 2) == second


def test_version_that_changed_is_fetched_again(place: Place, source: ModelSource) -> None:
    place.put("m/1/model.onnx", b"one")
    assert (source.fetch("m", 1) / "model.onnx").read_bytes() == b"one"
    place.put("m/1/model.onnx", b"One")
    assert (source.fetch("m", 1) / "model.onnx").read_bytes() == b"One"


def test_compiled_code_is_not_fetched(tmp_path: Path) -> None:
    """No checksum counts it, and Python would run it in place of the source."""
    place = in_memory()
    for path in ("model.py", "__pycache__/model.cpython-312.pyc", "deep/__pycache__/a.cpython-312.pyc"):
        place.put(f"m/1/{path}", b"1")
    folder = place.source(tmp_path).fetch("m", 1)
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["model.py"]


def test_file_that_can_not_be_read_is_no_deleted_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.onnx").write_bytes(b"one")

    def fails(path: Path, _: object) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(folder, "sha256_of", fails)
    with pytest.raises(SourceUnavailable, match=r"model\.onnx can't be read: Input/output error\."):
        FolderSource(tmp_path).versions("m")[1]


def test_store_that_tells_no_sizes_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = in_memory()
    place.put("m/1/model.onnx", b"one")
    find = MemoryFileSystem.find

    def without_sizes(self: MemoryFileSystem, *arguments: Any, **options: Any) -> Any:
        return {path: {**info, "size": None} for path, info in find(self, *arguments, **options).items()}

    monkeypatch.setattr(MemoryFileSystem, "find", without_sizes)
    source = place.source(tmp_path)
    assert (source.fetch("m", 1) / "model.onnx").read_bytes() == b"one"
    assert source.sizes("m") == {1: None}


def test_triton_configuration_beside_the_versions_belongs_to_them(tmp_path: Path) -> None:
    place = in_memory()
    place.put("m/1/model.onnx", b"one")
    source = place.source(tmp_path)
    before = fingerprint(source, 1)
    place.put("m/config.pbtxt", b"max_batch_size: 8")
    place.put("m/labels.txt", b"a\nb\n")
    assert fingerprint(source, 1) != before
    folder = source.fetch("m", 1)
    assert sorted(path.name for path in folder.iterdir()) == ["config.pbtxt", "labels.txt", "model.onnx"]
    assert source.versions("m")[1] == fingerprint(source, 1)


def test_version_policy_of_triton_counts_where_none_is_named(tmp_path: Path) -> None:
    pytest.importorskip("tritonclient.grpc")
    place = in_memory()
    for version in (1, 3, 12):
        place.put(f"m/{version}/model.onnx", b"one")
    source = place.source(tmp_path)
    with pytest.raises(ModelConfigError, match="expected a `version`"):
        wanted_version(source, "m", None, "here")
    place.put("m/config.pbtxt", "version_policy { specific { versions: [ 3 ] } }")
    assert wanted_version(source, "m", None, "here") == 3
    place.put("m/config.pbtxt", "")
    assert wanted_version(source, "m", None, "here") == 12


def test_latest_aliases_numbers_and_the_only_version(place: Place, source: ModelSource) -> None:
    place.put("m/2/model.onnx", b"two")
    assert wanted_version(source, "m", None, "here") == 2
    place.put("m/10/model.onnx", b"ten")
    place.put("m/aliases.yaml", "champion: 2\nchallenger: 10\n")
    assert source.aliases("m") == {"champion": 2, "challenger": 10}
    assert [wanted_version(source, "m", each, "here") for each in (2, "latest", "champion", "challenger")] == [
        2,
        10,
        2,
        10,
    ]
    with pytest.raises(ModelConfigError, match=r"here: expected a `version`, .* several \(there: 2, 10\)"):
        wanted_version(source, "m", None, "here")
    with pytest.raises(
        ModelConfigError, match=r"no alias `champio` \(aliases: challenger \(10\), champion \(2\);.*`champion`\?"
    ):
        wanted_version(source, "m", "champio", "here")
    place.put("m/aliases.yaml", "champion: 3\n")
    with pytest.raises(ModelConfigError, match=r"names version 3, which is not there \(there: 2, 10\)"):
        wanted_version(source, "m", "champion", "here")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("[1]", ":1: expected a line for each alias, such as `champion: 3`, found a list"),
        ("a: 1\nb: {", ":2: can't be read: not valid YAML at column 5"),
        ("a: 1\n\tb: 2", ":2: can't be read: not valid YAML"),
        ("latest: 3", ":1: latest: expected the name of an alias"),
        ("a: 1\n3: 3", ":2: 3: expected the name of an alias"),
        ("a: 1\nchampion: '3'", ":2: champion: expected the number of a version, found '3'"),
        ("champion: true", ":1: champion: expected the number of a version, found true"),
        ("champion: 2147483648", ":1: champion: expected the number of a version, found the number 2147483648"),
        ("champion: 2024-13-01", ":1: champion: expected the number of a version, found '2024-13-01'"),
        ("champion: " + 5000 * "9", ":1: champion: expected the number of a version"),
        ("champion: 3\nchampion: 4", ":2: champion: this key is written twice, on lines 1 and 2"),
        ("champion: &a [*a]", ":1: champion[0]: this alias (*name) refers to what it is part of"),
        (5000 * "[", "the YAML is nested too deeply"),
        (b"a: \xff", ":1: can't be read: expected UTF-8 text, found the byte 0xff"),
    ],
)
def test_aliases_that_are_none_are_told_with_their_line(tmp_path: Path, content: str | bytes, found: str) -> None:
    place = in_memory()
    place.put("m/1/model.onnx", b"one")
    place.put("m/aliases.yaml", content)
    with pytest.raises(ModelConfigError) as caught:
        place.source(tmp_path).aliases("m")
    assert str(caught.value).startswith(f"{place.url}/m/aliases.yaml:")
    assert found in str(caught.value)


@pytest.mark.parametrize("content", ["", "# none yet", "{}"])
def test_empty_file_of_aliases_has_none(content: str) -> None:
    assert parsed_aliases(content.encode(), "here") == {}


def test_what_is_not_there_is_told(place: Place, source: ModelSource) -> None:
    place.put("other/1/model.onnx", b"one")
    with pytest.raises(ModelConfigError, match=r"no model `othr` \(there: other\)\. Did you mean `other`\?"):
        source.versions("othr")
    with pytest.raises(ModelConfigError, match=r"no version 7 in .* \(there: 1\)"):
        source.fetch("other", 7)


def test_thousand_versions_are_listed_and_not_all_told(place: Place, source: ModelSource) -> None:
    for number in range(1, 1001):
        place.put(f"m/{number}/model.onnx", b"%d" % number)
    assert list(source.versions("m")) == list(range(1, 1001))
    assert wanted_version(source, "m", "latest", "here") == 1000
    with pytest.raises(ModelConfigError, match=r"there: 1,000, the last ones 991, 992, .*, 1000\)") as caught:
        source.fetch("m", 1001)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("sums", "problem"),
    [
        ({"model.onnx": "0" * 64}, "model.onnx has "),
        ({}, "model.onnx is not listed"),
        ({"weights.bin": "0" * 64}, "weights.bin is missing; model.onnx is not listed"),
    ],
)
def test_version_that_its_checksums_contradict_is_refused(
    place: Place, source: ModelSource, sums: dict[str, str], problem: str
) -> None:
    place.put("m/1/model.onnx", b"one")
    place.put(f"m/1/{CHECKSUMS_FILE}", "".join(f"{digest}  ./{path}\n" for path, digest in sums.items()))
    with pytest.raises(ModelConfigError, match="its files are not those of SHA256SUMS") as caught:
        source.fetch("m", 1)
    assert problem in str(caught.value)
    assert "Upload the version again, SHA256SUMS last" in str(caught.value)


def test_checksums_of_sha256sum_are_accepted(place: Place, source: ModelSource, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "model.onnx").write_bytes(b"one")
    digest = sums_of(tmp_path / "made")["model.onnx"]
    place.put("m/1/model.onnx", b"one")
    for line in (f"{digest}  model.onnx\n", f"{digest} *model.onnx\n", f"{digest.upper()}  ./model.onnx\n"):
        place.put(f"m/1/{CHECKSUMS_FILE}", line)
        assert (source.fetch("m", 1) / "model.onnx").read_bytes() == b"one"
    place.put(f"m/1/{CHECKSUMS_FILE}", "not a checksum")
    with pytest.raises(ModelConfigError, match=r"SHA256SUMS, line 1: expected a checksum of 64 digits"):
        source.fetch("m", 1)


@pytest.mark.parametrize("name", ["../../evil", "a/../../../evil"])
def test_file_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    import fsspec  # noqa: PLC0415

    place = in_memory()
    place.put("m/1/model.onnx", b"one")
    store = fsspec.filesystem("memory")
    store.store[f"/{place.url.removeprefix('memory://')}/m/1/{name}"] = store.store[
        f"/{place.url.removeprefix('memory://')}/m/1/model.onnx"
    ]
    with pytest.raises(ModelConfigError, match="would lie outside of the version's folder"):
        place.source(tmp_path / "cache").fetch("m", 1)
    assert not list(tmp_path.rglob("evil"))


class Switch:
    """A repository that a test turns off, and the calls that reach it."""

    def __init__(self, place: Place, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import fsspec  # noqa: PLC0415

        self.off = False
        store = type(fsspec.filesystem("memory"))
        for name in ("find", "ls", "cat_file", "get_file"):
            monkeypatch.setattr(store, name, self._switched(getattr(store, name)))
        self.source = place.source(cache)

    def _switched(self, call: object) -> object:
        def switched(*args: object, **kwargs: object) -> object:
            if self.off:
                raise ConnectionRefusedError("nobody listens")
            return call(*args, **kwargs)  # type: ignore[operator]

        return switched


@pytest.mark.parametrize("wanted", [2, "latest", "champion"])
def test_worker_starts_from_the_cache_while_the_source_is_away(
    tmp_path: Path, wanted: int | str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = in_memory()
    place.put("m/1/model.onnx", b"one")
    place.put("m/2/model.onnx", b"two")
    place.put("m/aliases.yaml", "champion: 2\n")
    first = fetch_at_start(place.source(tmp_path), "m", wanted, "here")
    switch = Switch(place, tmp_path, monkeypatch)
    switch.off = True
    again = fetch_at_start(switch.source, "m", wanted, "here")
    assert again == first
    assert "nobody listens" in caplog.text
    assert "Meanwhile, version 2 of model `m` runs from the cache" in caplog.text
    with pytest.raises(SourceUnavailable, match="nobody listens"):
        fetch_at_start(switch.source, "m", 1, "here")  # it was never fetched
    switch.off = False
    assert fetch_at_start(switch.source, "m", 1, "here").version == 1


def test_alias_that_moved_since_is_followed_once_the_source_is_back(tmp_path: Path) -> None:
    place = in_memory()
    place.put("m/1/model.onnx", b"one")
    place.put("m/2/model.onnx", b"two")
    place.put("m/aliases.yaml", "champion: 1\n")
    source = place.source(tmp_path)
    assert fetch_at_start(source, "m", "champion", "here").version == 1
    place.put("m/aliases.yaml", "champion: 2\n")
    assert fetch_at_start(source, "m", "champion", "here").version == 2
    place.put("m/aliases.yaml", "champion: 1\n")
    assert fetch_at_start(source, "m", "champion", "here").version == 1


def test_version_deleted_while_it_serves_stays_on_this_machine(tmp_path: Path) -> None:
    place = in_memory()
    place.put("m/1/model.onnx", b"one")
    source = place.source(tmp_path)
    folder = source.fetch("m", 1)
    place.remove("m/1")
    place.put("m/2/model.onnx", b"two")
    with pytest.raises(ModelConfigError, match=r"no version 1 in .* \(there: 2\)"):
        source.fetch("m", 1)
    assert (folder / "model.onnx").read_bytes() == b"one"


def test_version_that_changes_while_it_is_fetched_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec  # noqa: PLC0415

    place = in_memory()
    place.put("m/1/a", b"old")
    place.put("m/1/b", b"old")
    store = type(fsspec.filesystem("memory"))
    get_file = store.get_file

    def changing(self: object, path: str, local: str, **more: object) -> None:
        get_file(self, path, local, **more)
        if path.endswith("/a"):
            place.put("m/1/b", b"new")

    monkeypatch.setattr(store, "get_file", changing)
    with pytest.raises(SourceUnavailable, match="was changed while it was fetched"):
        place.source(tmp_path).fetch("m", 1)
    monkeypatch.undo()
    assert (place.source(tmp_path).fetch("m", 1) / "b").read_bytes() == b"new"


def test_call_that_hangs_is_given_up_and_no_other_one_begins() -> None:
    calls = BoundedCalls("the store", quiet=0.2)
    stop, begun = threading.Event(), []

    def hangs(_: object) -> None:
        begun.append(1)
        stop.wait()

    with pytest.raises(SourceUnavailable, match=r"the store has not answered for 0\.2 s"):
        calls.run(hangs)
    with pytest.raises(SourceUnavailable, match="the store has not answered an earlier request yet"):
        calls.run(hangs)
    with pytest.raises(SourceUnavailable, match="the store has not answered an earlier request yet"):
        BoundedCalls("the store", quiet=0.2).run(hangs)  # as of another source of this place
    assert len(begun) == 1
    stop.set()
    for thread in threading.enumerate():
        if thread.name == "model source":
            thread.join()
    assert calls.run(lambda _: 7) == 7


def test_long_call_holds_up_no_other_one() -> None:
    calls, stop = BoundedCalls("the store", quiet=60), threading.Event()
    long = threading.Thread(target=calls.run, args=(lambda _: stop.wait(60),))
    long.start()
    found: list[int] = []
    short = threading.Thread(target=lambda: found.append(calls.run(lambda _: 7)))
    short.start()
    short.join(30)
    is_there = found == [7]
    stop.set()
    long.join()
    assert is_there


def test_call_that_was_given_up_does_not_disturb_one_that_has_begun() -> None:
    calls = BoundedCalls("another store", quiet=0.5)
    begun, given_up, found = threading.Event(), threading.Event(), []

    def downloads(progress: Progress) -> str:
        begun.set()
        while not given_up.wait(0.05):
            progress.add(1)
        return "whole"

    caller = threading.Thread(target=lambda: found.append(calls.run(downloads)))
    caller.start()
    assert begun.wait(60)
    stop = threading.Event()
    with pytest.raises(SourceUnavailable, match="has not answered for"):
        calls.run(lambda _: stop.wait())
    with pytest.raises(SourceUnavailable, match="an earlier request"):
        calls.run(lambda _: None)
    given_up.set()
    caller.join()
    assert found == ["whole"]
    stop.set()


def test_folder_on_a_drive_that_hangs_is_given_up_whatever_is_asked(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.onnx").write_bytes(b"one")
    asks: list[Callable[[FolderSource], object]] = [
        lambda source: source.versions("m"),
        lambda source: source.aliases("m"),
        lambda source: source.fetch("m", 1),
        lambda source: source.read(lambda _: (tmp_path / "m" / "1" / "model.onnx").read_bytes()),
    ]
    source = FolderSource(tmp_path, quiet=0.2)
    for ask in asks:
        with HungFolder(tmp_path), pytest.raises(SourceUnavailable, match=r"has not answered for 0\.2 s"):
            ask(source)
        for thread in threading.enumerate():
            if thread.name == "model source":
                thread.join()
        ask(source)


def test_file_that_vanishes_while_the_version_is_checked_may_be_a_matter_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = tmp_path / "m" / "1"
    version.mkdir(parents=True)
    for name in ("SHA256SUMS", "a", "b"):
        (version / name).write_bytes(b"")

    def replacing(path: Path, on_piece: Callable[[int], object]) -> str:
        (version / "b").unlink(missing_ok=True)
        return sha256_of(path, on_piece)

    monkeypatch.setattr(folder, "sha256_of", replacing)
    with pytest.raises(SourceUnavailable, match=rf"model `m` version 1 .*{version / 'b'} vanished while"):
        FolderSource(tmp_path).fetch("m", 1)


def test_links_that_lead_nowhere_are_no_models(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "to-m").symlink_to(tmp_path / "m")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    assert sorted(folders_in(tmp_path, Progress())) == ["m", "to-m"]


def test_folder_that_hangs_is_given_up_and_read_again_once_it_answers(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    aliases = tmp_path / "m" / "aliases.yaml"
    os.mkfifo(aliases)  # to open it takes until somebody writes
    source = FolderSource(tmp_path, quiet=0.2)
    with pytest.raises(SourceUnavailable, match=rf"model repository {tmp_path} has not answered for 0\.2 s"):
        source.aliases("m")
    with pytest.raises(SourceUnavailable, match="has not answered an earlier request yet"):
        source.versions("m")
    aliases.open("w").close()
    for thread in threading.enumerate():
        if thread.name == "model source":
            thread.join()
    aliases.unlink()
    aliases.write_text("champion: 1")
    assert source.aliases("m") == {"champion": 1}
    assert list(source.versions("m")) == [1]


def test_call_with_progress_is_not_given_up() -> None:
    pause = threading.Event()

    def slow(progress: object) -> str:
        for _ in range(6):
            pause.wait(0.1)
            progress.add(1)  # type: ignore[attr-defined]
        return "done"

    assert BoundedCalls("a slow store", quiet=0.4).run(slow) == "done"


def test_file_that_a_folder_links_to_elsewhere_is_refused_with_checksums(tmp_path: Path) -> None:
    version = tmp_path / "m" / "1"
    version.mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"secret")
    (version / "model.onnx").symlink_to(tmp_path / "secret")
    (version / CHECKSUMS_FILE).write_text("")
    with pytest.raises(ModelConfigError, match="is a link to"):
        FolderSource(tmp_path).fetch("m", 1)


def test_scheme_that_nobody_knows_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match=r"expected s3://, gs://, .*; found nowhere://"):
        open_source(Repository("nowhere://x", tmp_path, 1))


@pytest.mark.parametrize(("url", "extra"), [("gs://bucket/models", "gcs"), ("az://box/models", "azure")])
def test_missing_client_is_told_with_the_line_for_pip(tmp_path: Path, url: str, extra: str) -> None:
    import importlib.util  # noqa: PLC0415

    if importlib.util.find_spec({"gcs": "gcsfs", "azure": "adlfs"}[extra]) is not None:
        pytest.skip("the client is installed")
    with pytest.raises(ModelConfigError, match=rf"-m pip install 'millstream\[{extra}\]'"):
        open_source(Repository(url, tmp_path, 1))


def test_options_of_clients_may_be_nested() -> None:
    options = {"key": "k", "anon": "false", "client_kwargs.region_name": "eu", "client_kwargs.verify": "true"}
    assert nested(options) == {"key": "k", "anon": False, "client_kwargs": {"region_name": "eu", "verify": True}}


@given(st.text(), st.text(min_size=4))
def test_secrets_never_show(text: str, secret: str) -> None:
    said = redacted(f"{text} http://user:{secret}@host/ {secret} https://x/?sig={secret}&X-Amz-Signature=abc", [secret])
    assert secret not in said or secret in redacted(
        f"{text} http://***@host/ *** https://x/?sig=***&X-Amz-Signature=***"
    )


@pytest.mark.parametrize(
    "text",
    [
        "Redis at h:6379,password=hunter2,ssl=true is away",
        "postgres: {'user': 'a', 'password': 'hunter2'}",
        "1 validation error [type=int, input_value={'connection_string': 'h,user:hunter2'}, input_type=dict]",
    ],
)
def test_secrets_of_other_programs_do_not_show(text: str) -> None:
    assert "hunter2" not in redacted(text)


def test_signed_urls_lose_their_signatures() -> None:
    assert (
        redacted("GET https://b/k?X-Amz-Credential=AKIA/x&x=1&sig=abc")
        == "GET https://b/k?X-Amz-Credential=***&x=1&sig=***"
    )


@pytest.mark.parametrize(
    "option", ["account_key", "project_token", "connection_string", "sas_token", "client.secret_url"]
)
def test_only_options_that_are_no_secrets_may_show(option: str) -> None:
    store = ObjectStore("memory://x", {option: "k3y-0f-the-store", "account_name": "weather"}, "")
    said = str(store.explained(ValueError("weather: k3y-0f-the-store is wrong")))
    assert "k3y-0f-the-store" not in said
    assert "weather" in said


@pytest.mark.parametrize(
    "text",
    ["GET /?k=a%2Fb%2Bc%3D%3D", "GET /?k=a/b%2Bc%3D%3D", "a/b+c==", "key:\n-----BEGIN KEY-----\nMIIEvQIBADANBgkqh\n"],
)
def test_secrets_never_show_in_another_form(text: str) -> None:
    said = redacted(text, ["a/b+c==", "-----BEGIN KEY-----\nMIIEvQIBADANBgkqh\n"])
    assert not any(each in said for each in ("a/b", "a%2F", "MIIEv"))


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        (
            "AccountName=weather;AccountKey=Zm9vYmFyYmF6cXV4Zm9v==;BlobEndpoint=http://h/",
            "key Zm9vYmFyYmF6cXV4Zm9v== of h",
        ),
        ('{"private_key": "-----BEGIN KEY-----\\nZm9vYmFyYmF6cXV4Zm9v\\n"}', "no key: Zm9vYmFyYmF6cXV4Zm9v"),
        ("?sv=2026-01-01&sig=Zm9vYmFyYmF6cXV4Zm9v%3D", "signature 'Zm9vYmFyYmF6cXV4Zm9v%3D' has expired"),
    ],
)
def test_parts_of_secrets_never_show(secret: str, text: str) -> None:
    assert "Zm9v" not in redacted(text, [secret])
