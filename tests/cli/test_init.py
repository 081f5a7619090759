from pathlib import Path

from tests.cli.command import millstream


def test_new_folder_holds_a_pipeline_that_checks(tmp_path: Path) -> None:
    made = millstream("init", tmp_path / "new" / "flights")
    assert made.returncode == 0, made.stderr
    assert "millstream topics create ." in made.stdout
    checked = millstream("check", tmp_path / "new" / "flights", "--offline")
    assert checked.returncode == 0, checked.stderr
    names = {path.name for path in (tmp_path / "new" / "flights").iterdir()}
    assert names == {"README.md", "events.jsonl", "models", "pipeline.yaml", "schemas"}


def test_empty_folder_is_filled(tmp_path: Path) -> None:
    assert millstream("init", tmp_path).returncode == 0
    assert (tmp_path / "pipeline.yaml").exists()


def test_folder_with_something_in_it_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    refused = millstream("init", tmp_path)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"{tmp_path}: expected a new or empty folder, found a folder that isn't empty. Choose another name.\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_place_that_is_a_file_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    for folder in (place, place / "below"):
        refused = millstream("init", folder)
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
        assert str(folder) in refused.stderr
