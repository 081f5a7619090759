from pathlib import Path

from millstream.pipeline.loading import load_pipeline
from tests.cli.command import millstream, millstream_here


def uncommented(file: Path) -> str:
    """A pipeline file with the sections that `init` leaves as comments."""
    text = file.read_text(encoding="utf-8")
    for section in ("labels: ", "rollout: "):
        assert text.count(f"\n# {section}") == 1
        text = text.replace(f"\n# {section}", f"\n{section}")
    return text


def test_sections_for_later_are_comments_that_a_pipeline_can_take(tmp_path: Path) -> None:
    assert millstream_here("init", tmp_path / "flights").returncode == 0
    file = tmp_path / "flights" / "pipeline.yaml"
    file.write_text(uncommented(file), encoding="utf-8")
    pipeline = load_pipeline(file, {})
    assert pipeline.labels is not None
    assert pipeline.rollout is not None
    for page in ("comparison", "rollouts"):
        assert f"(millstream docs {page})" in file.read_text(encoding="utf-8")


def test_new_folder_holds_a_pipeline_that_checks(tmp_path: Path) -> None:
    made = millstream("init", tmp_path / "new" / "flights")
    assert made.returncode == 0, made.stderr
    assert "millstream topics create ." in made.stdout
    checked = millstream("check", tmp_path / "new" / "flights", "--offline")
    assert checked.returncode == 0, checked.stderr
    names = {path.name for path in (tmp_path / "new" / "flights").iterdir()}
    assert names == {"README.md", "events.jsonl", "models", "pipeline.yaml", "schemas"}


def test_command_for_a_folder_with_a_space_is_quoted(tmp_path: Path) -> None:
    folder = tmp_path / "Mein Hain!"
    assert f"cd '{folder}'\n" in millstream_here("init", folder).stdout


def test_empty_folder_is_filled(tmp_path: Path) -> None:
    assert millstream_here("init", tmp_path).returncode == 0
    assert (tmp_path / "pipeline.yaml").exists()


def test_folder_with_something_in_it_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    refused = millstream_here("init", tmp_path)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"{tmp_path}: expected a new or empty folder, found a folder that isn't empty. Choose another name.\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_place_that_is_a_file_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    for folder in (place, place / "below"):
        refused = millstream_here("init", folder)
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
        assert str(folder) in refused.stderr
