"""`millstream models`: versions, aliases, where they are, what workers serve, and how two of them differ."""

from __future__ import annotations

import json
import shutil
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from millstream.consumers.cli import main as cli
from millstream.consumers.cli.model_differences import CHANGE_OVER, RESTART
from millstream.consumers.cli.serving import Refusal, refusals, served
from millstream.consumers.demo.example import example_folder
from millstream.inference.sources.checksums import digest_of, sums_of
from tests.broker.choice import Broker
from tests.consumers.service import flights_service
from tests.inference.models import doubling
from tests.inference.sources.places import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
EVENTS = str(example_folder() / "events.jsonl")
NAME = "flights-delay"
CLASSIFIER = """
import numpy as np

class Model:
    def __init__(self, folder, device):
        pass

    def predict(self, inputs):
        events = np.arange(len(inputs["numbers"]))
        return {{"index": {index}, "scores": np.eye(3)[{index}]}}
"""


@pytest.fixture(params=["folder", "url"])
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A pipeline with versions 1 and 2 of the flights' model, in a folder or at a URL."""
    service = flights_service(tmp_path, NOWHERE, with_topics=False)
    models = tmp_path / "models"
    if not (models / NAME / "2").exists():
        shutil.copytree(models / NAME / "1", models / NAME / "2")
    (models / NAME / "aliases.yaml").write_text("champion: 1\nnewest: 2\nold: 1\n")
    document = yaml.safe_load(service.file.read_text("utf-8"))
    document["model"] = {"name": NAME, "version": "champion", "cache": "cache"}
    if request.param == "url":
        place = Place(f"file://{tmp_path}/remote")
        place.put_folder(models)
        shutil.rmtree(models)
        document["model"]["repository"] = place.url
    service.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return str(service.file)


def rows(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    assert cli.run(["models", *arguments, "--json"]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_list_names_versions_aliases_and_sizes(
    pipeline: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = rows(capsys, "list", pipeline)
    assert [(row["version"], row["aliases"]) for row in found] == [(1, ["champion", "old"]), (2, ["newest"])]
    assert all(row["bytes"] > 1000 for row in found)
    remote = (tmp_path / "remote").exists()
    assert (found[0]["folder"] is None) == remote  # `list` fetches nothing
    assert cli.run(["models", "fetch", pipeline, "1"]) == 0
    capsys.readouterr()
    after = rows(capsys, "list", pipeline)
    assert after[0]["folder"] is not None
    if remote:
        assert after[0]["checksum"] == digest_of(sums_of(tmp_path / "remote" / NAME / "1"))
        assert after[1]["folder"] is None
    assert cli.run(["models", "list", pipeline]) == 0
    lines = capsys.readouterr().out.splitlines()
    place = ["in", "the", "cache"] if remote else ["folder"]
    assert lines[0].split() == ["version", "aliases", "size", "checksum", *place]
    assert lines[1].startswith("1        champion, old  ")
    assert not any("names none" in line for line in lines)


def test_list_says_that_the_pipeline_file_names_none_of_several_versions(
    pipeline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(pipeline)
    document = yaml.safe_load(file.read_text("utf-8"))
    del document["model"]["version"]
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert cli.run(["models", "list", pipeline]) == 0
    assert f"\n{file.name} names none of them: write `version: 2` under `model:`\n" in capsys.readouterr().out


def test_list_names_a_missing_version_of_an_alias_and_needs_no_checksums(
    pipeline: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    beside = config_of(tmp_path, 1).parents[1]
    (beside / "aliases.yaml").write_text("champion: 1\nnext: 7\n")
    (beside / "1" / "SHA256SUMS").write_text(f"{64 * '0'}  model.onnx\n")  # files that a list doesn't read
    found = rows(capsys, "list", pipeline)
    assert [(row["version"], row["aliases"], row["exists"]) for row in found] == [
        (1, ["champion"], True),
        (2, [], True),
        (7, ["next"], False),
    ]
    assert cli.run(["models", "list", pipeline]) == 0
    assert capsys.readouterr().out.splitlines()[3].split() == ["7", "next", "missing", "-", "-"]


def test_show_tells_the_signature_of_the_pipelines_version(pipeline: str, capsys: pytest.CaptureFixture[str]) -> None:
    [found] = rows(capsys, "show", pipeline)
    assert (found["version"], found["aliases"], found["executor"]) == (1, ["champion", "old"], "onnx")
    assert any("float32" in line for line in found["inputs"])
    [other] = rows(capsys, "show", pipeline, "newest")
    assert other["version"] == 2
    assert cli.run(["models", "show", pipeline, "latest"]) == 0
    said = capsys.readouterr().out
    assert f"model {NAME} version 2 (" in said
    assert "\nexecutor  onnx\ninput     " in said


def test_fetch_copies_a_version_where_it_can_be_changed(
    pipeline: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    [found] = rows(capsys, "fetch", pipeline, "newest", "--output", str(tmp_path / "copy"))
    folder = tmp_path / "copy" / NAME / "2"
    assert found["folder"] == str(folder)
    assert digest_of(sums_of(folder)) == found["checksum"]
    assert cli.run(["models", "fetch", pipeline, "newest", "--output", str(tmp_path / "copy")]) == 1
    assert f"{folder} exists already, and no version is overwritten" in capsys.readouterr().err


def test_warm_loads_and_runs_the_model(pipeline: str, capsys: pytest.CaptureFixture[str]) -> None:
    [found] = rows(capsys, "warm", pipeline, "2")
    assert (found["version"], found["device"]) == (2, "cpu")
    assert cli.run(["models", "warm", pipeline]) == 0
    assert f"version 1 of {NAME} works on cpu: fetched in " in capsys.readouterr().out


def test_version_that_rejects_blank_events_is_told(
    pipeline: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = config_of(tmp_path, 2).parent
    (folder / "model.onnx").unlink()
    (folder / "model.py").write_text(
        "class Model:\n    def __init__(self, folder, device): pass\n"
        "    def predict(self, inputs): raise ValueError('too blank')\n"
    )
    document = yaml.safe_load((tmp_path / "pipeline.yaml").read_text("utf-8"))
    document["model"]["trust"] = True
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    assert cli.run(["models", "warm", pipeline, "2"]) == 1
    said = capsys.readouterr()
    assert "it rejects a blank event: " in said.err
    assert "too blank" in said.err
    assert said.out == ""


@pytest.mark.parametrize("action", [["list"], ["show"], ["diff", "1", "2"]])
def test_pipeline_of_several_models_is_refused(
    pipeline: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, action: list[str]
) -> None:
    document = yaml.safe_load((tmp_path / "pipeline.yaml").read_text("utf-8"))
    del document["model"]
    document["models"] = {"route": {"field": "carrier", "values": {"AA": {"name": NAME, "version": 1}}}}
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    assert cli.run(["models", action[0], pipeline, *action[1:]]) == 1
    assert f"`millstream models {action[0]}` works on one model, found `models`" in capsys.readouterr().err


def test_diff_tells_that_workers_do_not_change_over(
    pipeline: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    two = copy_of_the_first(tmp_path)
    changed = yaml.safe_load((two / "config.yaml").read_text("utf-8"))
    entry = next(entry for entry in changed["inputs"] if "fields" in entry)
    entry["fields"][0] = {"field": entry["fields"][0], "missing": 0}
    (two / "config.yaml").write_text(yaml.safe_dump(changed), encoding="utf-8")
    [found] = rows(capsys, "diff", pipeline, "1", "2", code=1)
    assert (found["kind"], found["breaks"]) == ("mapping", True)
    assert "does not: " in found["new"]


def test_what_is_not_there_is_told(pipeline: str, capsys: pytest.CaptureFixture[str]) -> None:
    for version, said in (("7", "no version 7 in"), ("champio", "no alias `champio`"), ("latest", "")):
        assert cli.run(["models", "show", pipeline, version]) == (1 if said else 0)
        assert said in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.run(["models", "show", pipeline, "1.5"])
    assert "expected a version's number, latest or an alias, found '1.5'" in capsys.readouterr().err


def config_of(tmp_path: Path, version: int) -> Path:
    root = tmp_path / "remote" if (tmp_path / "remote").exists() else tmp_path / "models"
    return root / NAME / str(version) / "config.yaml"


def copy_of_the_first(tmp_path: Path) -> Path:
    """Make version 2 equal to version 1; returns its folder."""
    one, two = config_of(tmp_path, 1).parent, config_of(tmp_path, 2).parent
    shutil.rmtree(two)
    shutil.copytree(one, two)
    return two


def test_diff_of_equal_versions_finds_nothing(
    pipeline: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    copy_of_the_first(tmp_path)
    assert cli.run(["models", "diff", pipeline, "champion", "latest", "--events", EVENTS]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"model     {NAME}: version 1 -> version 2",
        "same      the inputs, outputs and batch sizes, and the outputs of 20 events",
        f"workers   {CHANGE_OVER}",
    ]
    assert cli.run(["models", "diff", pipeline, "champion", "latest"]) == 0
    said = capsys.readouterr().out
    assert (
        "\nsame      the inputs, outputs and batch sizes\noutputs   not compared: with `--events FILE`, both versions run"
        in said
    )
    assert cli.run(["models", "diff", pipeline, "champion", "1"]) == 1
    assert "champion and 1 are both version 1. Name two versions." in capsys.readouterr().err


def test_diff_tells_which_events_it_could_not_compare(
    pipeline: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    copy_of_the_first(tmp_path)
    lines = Path(EVENTS).read_text(encoding="utf-8").splitlines()
    some, none = tmp_path / "some.jsonl", tmp_path / "none.jsonl"
    some.write_text("\n".join([lines[0], "{}", lines[1]]), encoding="utf-8")
    none.write_text("{}\n{}\n", encoding="utf-8")
    assert cli.run(["models", "diff", pipeline, "1", "2", "--events", str(some)]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[1].endswith("and the outputs of 2 events")
    assert said.err.startswith(f"1 event left out, such as {some}:2")
    assert cli.run(["models", "diff", pipeline, "1", "2", "--events", str(none)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "no version predicts any of the 2 events, so there are no outputs to compare. The first is " in said.err
    assert f"{none}:1" in said.err


@pytest.mark.parametrize("damage", ["pointer", "another model"])
def test_version_whose_file_is_not_its_model_is_refused(
    pipeline: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, damage: str
) -> None:
    file = copy_of_the_first(tmp_path) / "model.onnx"
    if damage == "pointer":
        file.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
        says = f"{file.name} can't be loaded: this is a pointer of Git LFS, not the model itself. Get the model: git lfs pull"
    else:
        shutil.copy(doubling(tmp_path / "others").file, file)
        says = "Inputs of the model that are not mapped: x"
    assert cli.run(["models", "diff", pipeline, "1", "2"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert says in said.err
    assert cli.run(["models", "show", pipeline, "2"]) == 1
    assert says in capsys.readouterr().err


def test_diff_says_that_it_loads_no_version_in_python(
    pipeline: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = copy_of_the_first(tmp_path)
    (folder / "model.onnx").unlink()
    (folder / "model.py").write_text("raise RuntimeError\n", encoding="utf-8")
    document = yaml.safe_load(Path(pipeline).read_text("utf-8"))
    document["model"]["trust"] = True
    Path(pipeline).write_text(yaml.safe_dump(document), encoding="utf-8")
    assert cli.run(["models", "diff", pipeline, "1", "2"]) == 0
    assert "\nfiles     not loaded, so they may be damaged (version 2): " in capsys.readouterr().out


def test_diff_tells_how_signatures_and_outputs_differ(
    pipeline: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    two = copy_of_the_first(tmp_path)
    changed = yaml.safe_load((two / "config.yaml").read_text("utf-8"))
    name = changed["outputs"][0].get("name", changed["outputs"][0]["tensor"])
    changed["outputs"][0]["name"] = "other"
    changed["batch_sizes"] = [3]
    (two / "config.yaml").write_text(yaml.safe_dump(changed), encoding="utf-8")
    found = rows(capsys, "diff", pipeline, "1", "2", "--events", EVENTS, code=1)
    kinds = {(row["kind"], row["what"], row["breaks"]) for row in found}
    assert {("output", name, True), ("output", "other", True), ("batches", "batch_sizes", False)} <= kinds
    assert cli.run(["models", "diff", pipeline, "1", "2"]) == 1
    assert f"\nworkers   {RESTART}\n" in capsys.readouterr().out


def test_diff_measures_the_outputs_of_another_training(pipeline: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, "diff", pipeline, "1", "2", "--events", EVENTS, code=1)  # the second one has a field more
    assert [(row["what"], row["breaks"]) for row in found if row["kind"] == "input"] == [("numbers", True)]
    values = [row for row in found if row["kind"] == "values"]
    assert values
    assert all("events differ" in row["new"] and "on average" in row["new"] for row in values)


@pytest.mark.parametrize(
    "output",
    [
        "{tensor: index, name: label, classes: ['0', '1', '2']}",
        "{tensor: scores, name: label, top: 1}",
        "{tensor: scores, name: label, classes: ['0', '1', '2'], top: 1}",
    ],
)
def test_diff_counts_the_events_whose_class_differs(
    pipeline: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, output: str
) -> None:
    copy_of_the_first(tmp_path)
    for version, index in ((1, "0 * events"), (2, "2 * (events < 3)")):
        config = config_of(tmp_path, version)
        config.with_name("model.onnx").unlink()
        config.with_name("model.py").write_text(CLASSIFIER.format(index=index), encoding="utf-8")
        config.write_text(
            config.read_text("utf-8").partition("outputs:")[0] + f"outputs: [{output}]\n", encoding="utf-8"
        )
    document = yaml.safe_load(Path(pipeline).read_text("utf-8"))
    document["model"]["trust"] = True
    Path(pipeline).write_text(yaml.safe_dump(document), encoding="utf-8")
    (label,) = [row for row in rows(capsys, "diff", pipeline, "1", "2", "--events", EVENTS) if row["what"] == "label"]
    assert label["new"].endswith(" in the first event that differs (the class differs in 3 of 20 events)")


ERROR = 'file "{a}\\b" is no\nmodel'
ESCAPED = ERROR.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


@pytest.fixture
def worker() -> Iterator[str]:
    """A worker's metrics port, as far as `millstream models` reads it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = (
                f'# TYPE x gauge\nmillstream_serving_model{{model="{NAME}",pipeline="p",version="2"}} 1.0\n'
                f'millstream_model_reload_error{{error="{ESCAPED}",model="{NAME}",pipeline="p",reason="load"}} 1.0\n'
            ).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_list_tells_which_worker_serves_which_version(
    pipeline: str, capsys: pytest.CaptureFixture[str], worker: str
) -> None:
    found = rows(
        capsys, "list", pipeline, "--worker", worker, "--worker", "127.0.0.1:1", "--worker", "http://nowhere:1"
    )
    assert [row["served_by"] for row in found] == [[], [worker]]
    assert found[0]["unknown_workers"].keys() == {"127.0.0.1:1", "http://nowhere:1"}
    assert found[0]["unknown_workers"]["http://nowhere:1"] == "expected HOST:PORT"
    assert cli.run(["models", "list", pipeline, "--worker", worker, "--worker", "nowhere"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[2].endswith(worker)
    told = 'file "{a}\\b" is no\\nmodel'
    assert said.out.splitlines()[3] == f"worker {worker} doesn't change over (load): {told}"
    assert found[0]["refusals"] == {worker: f"load: {told}"}
    assert said.err == "worker nowhere: expected HOST:PORT\n"


def test_refusal_that_several_workers_of_a_port_share_is_told_once() -> None:
    series = 'millstream_model_reload_error{{error="{}",model="m",reason="load",worker="{}"}} 1.0\n'
    text = series.format("no model", 1) + series.format("no model", 2) + series.format("too large", 3)
    assert refusals(text) == (Refusal("m", "load", "no model"), Refusal("m", "load", "too large"))


def test_series_of_versions_that_are_gone_do_not_count() -> None:
    text = 'millstream_serving_model{model="m",version="1"} 0\nmillstream_serving_model{model="m",version="3"} 1.0\n'
    assert served(text) == (("m", 3),)
    assert served("") == ()
