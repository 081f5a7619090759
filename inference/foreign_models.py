"""Recognises files that no executor runs, and says how to make a model of them."""

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from millstream.inference.executors.error_classification import line_of
from millstream.schemas import git_lfs

PICKLES: Final = (".pkl", ".pickle", ".joblib")
CATBOOST: Final = ".cbm"
BOOSTERS: Final = {
    ".ubj": "XGBoost",
    ".xgb": "XGBoost",
    ".json": "XGBoost",
    ".txt": "LightGBM",
    ".lgb": "LightGBM",
    CATBOOST: "CatBoost",
}
WEIGHTS: Final = (".pth", ".ckpt", ".safetensors")
KERAS: Final = (".keras", ".h5", ".hdf5")
_SAVED_MODEL: Final = "saved_model.pb"  # in the folder of a SavedModel
WITHOUT_MAPS: Final = (
    "`options={'zipmap': False}` (skl2onnx's to_onnx) or `zipmap=False` (onnxmltools' convert_lightgbm); for CatBoost, see "
    "`millstream docs models#a-model-of-catboost`"
)
"""The options of the converters that keep them from writing a list of maps in place of a tensor of scores."""
_HEAD_BYTES: Final = 512
_XGBOOST_BYTES: Final = 32  # at the beginning of a model of XGBoost, which have its first key


def how_to_convert(suffix: str) -> str:
    """What to do with a model's file that ends like this; empty: the ending says nothing."""
    if suffix in PICKLES:
        return (
            "a pickled model runs code when it is loaded, so Millstream doesn't load it. Convert it to ONNX where you trained it "
            "(scikit-learn: `skl2onnx.to_onnx(model, numpy.asarray(X[:1], 'float32'))`; if X is a DataFrame that has texts, too: "
            "`X[:1]` with its columns of numbers as float32, in place of the array; for a classifier also "
            "`options={'zipmap': False}`; XGBoost and LightGBM: package onnxmltools; `millstream docs "
            "models#features-from-fields`), or load it in a class of yours in model.py (`millstream docs "
            "models#a-model-in-python`)."
        )
    if suffix == CATBOOST:
        return (
            "this looks like a model of CatBoost. Save it as ONNX (`model.save_model('model.onnx', format='onnx')`), and take "
            "the maps out of it (`millstream docs models#a-model-of-catboost`); or load it in a class of yours in model.py."
        )
    if suffix in BOOSTERS:
        return (
            f"this looks like a model of {BOOSTERS[suffix]}. Convert it to ONNX with the package onnxmltools (`millstream docs "
            "models#features-from-fields`), or load it in a class of yours in model.py (`millstream docs "
            "models#a-model-in-python`)."
        )
    if suffix in WEIGHTS:
        return (
            "this looks like a checkpoint: the weights of a torch model, which don't say how to run it. Where the model's code "
            "is, load them into it, export it with `torch.export.export`, and save that as model.pt2. Or load both in a class of "
            "yours in model.py (`millstream docs models#a-model-in-torch`)."
        )
    if suffix in KERAS:
        return (
            "this looks like a model of Keras. Convert it to ONNX with the package tf2onnx where you trained it (Keras 3: "
            "`keras.models.load_model(FILE).export('model.onnx', format='onnx')`; Keras 2: "
            "`tf2onnx.convert.from_keras(model, output_path='model.onnx')`), or load it in a class of yours in model.py "
            "(`millstream docs models#a-model-in-python`)."
        )
    return ""


def what_to_convert(folder: Path) -> str:
    """If the folder has a model that must be converted: its path, and how. Otherwise empty."""
    for path in sorted(folder.iterdir()):
        suffix = path.suffix.lower()
        if path.name == _SAVED_MODEL or (path / _SAVED_MODEL).is_file():
            saved = path if path.is_dir() else folder
            return (
                f"{saved}: this is a SavedModel of TensorFlow. Convert it to ONNX with the package tf2onnx: `python -m "
                f"tf2onnx.convert --saved-model {saved} --output {folder / 'model.onnx'}`; or load it in a class of yours in "
                f"model.py (`millstream docs models#a-model-in-python`)."
            )
        # In a model's folder, other files of text may be vocabularies and the like.
        if path.is_file() and (
            suffix in (*PICKLES, *KERAS) or (path.stem == "model" and suffix in (*BOOSTERS, *WEIGHTS))
        ):
            return f"{path}: {how_to_convert(suffix)}"
    return ""


def not_as_named(path: Path) -> str:
    """What a zip archive of torch's holds in place of the model that its name promises, and what to do; empty: that model.

    `path`: an archive, model.pt2 or model.pt.
    """
    with zipfile.ZipFile(path) as archive:
        parts = {name.partition("/")[2] for name in archive.namelist()}
    is_script = "constants.pkl" in parts
    if "data.pkl" in parts and not is_script:
        return how_to_convert(WEIGHTS[0])
    if is_script == (path.suffix.lower() == ".pt"):
        return ""
    return (
        "it is TorchScript. Name it model.pt, or save the model with torch.export as model.pt2."
        if is_script
        else "it is no TorchScript. If torch.export.save wrote it, name it model.pt2."
    )


def what_it_is(path: Path, error: Exception) -> str:
    """What the file is that should be an ONNX model, and what to do; empty: nothing that this function knows.

    `error`: what the library raised that tried to load it.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return ""
    known = next((text for is_it, text in _HEADS if is_it(head)), "")
    if not known and any(words in str(error) for words in _DAMAGED):
        return f"it is no whole ONNX model: it is damaged or cut off. Copy or export it again. The library says: {line_of(error)}"
    return known or _too_new(str(error)) or _of_a_text_vectorizer(str(error))


def _too_new(said: str) -> str:
    """What to do with a model that is newer than ONNX Runtime; empty: it says something else."""
    if opset := _NEW_OPSET.search(said):
        return (
            f"it has opset {opset[1]} of {opset[2]}, and this ONNX Runtime knows its opsets up to {opset[3]}. Export the model "
            f"with opset {opset[3]}, or install a newer ONNX Runtime."
        )
    if version := _NEW_FORMAT.search(said):
        return (
            f"it has IR version {version[1]} of ONNX's format, and this ONNX Runtime knows versions up to {version[2]}. Save it "
            f"with an older one (`model.ir_version = {version[2]}` before `onnx.save`), or install a newer ONNX Runtime."
        )
    return ""


def _of_a_text_vectorizer(said: str) -> str:
    """What to do if an operator for texts can't be created; empty: it says something else."""
    if locale := _NO_LOCALE.search(said):
        return (
            f"it makes texts lower case by the locale {locale[1]}, which this machine lacks. Convert the model again with the "
            "option `locale` (skl2onnx: `options={TfidfVectorizer: {'locale': 'C.UTF-8', ...}}`, see `millstream docs "
            f"models#text-vectorizers`), or install {locale[1]} on each machine that loads the model."
        )
    if pattern := _NO_PATTERN.search(said):
        return (
            f"the pattern that splits its texts into words isn't in RE2's syntax: {pattern[1].strip()}. Convert the model again "
            f"with the option `tokenexp` (`millstream docs models#text-vectorizers`)."
        )
    return ""


def advice_on_doubles(said: str) -> str:
    """What to do if ONNX Runtime lacks an operator for float64; empty: it says something else."""
    if "NOT_IMPLEMENTED" not in said and "tensor(double)" not in said:
        return ""
    return (
        "ONNX Runtime has some operators for float32 only: convert the model with inputs of float32 "
        "(scikit-learn: `X[:1].astype('float32')`; if X has texts, too: only its columns of numbers)."
    )


_NEW_OPSET: Final = re.compile(r"[Oo]pset (\d+) is under development.*domain (\S+) is till opset (\d+)", re.DOTALL)
_NEW_FORMAT: Final = re.compile(r"Unsupported model IR version: (\d+), max supported IR version: (\d+)")
_NO_LOCALE: Final = re.compile(r"Failed to construct locale with name:([^:]+)")
_NO_PATTERN: Final = re.compile(r"Can not digest tokenexp: (.+)")
_DAMAGED: Final = ("INVALID_PROTOBUF", "Protobuf parsing failed", "Error parsing message")
"""Words of ONNX Runtime and of the package onnx."""


_HEADS: Final[tuple[tuple[Callable[[bytes], bool], str], ...]] = (
    (lambda head: not head, "the file is empty. Copy or export the model again."),
    (
        lambda head: head.startswith(git_lfs.HEAD.encode()),
        "this is a pointer of Git LFS, not the model itself. Get the model: git lfs pull",
    ),
    (
        lambda head: head.lstrip().lower().startswith((b"<!doctype html", b"<html", b"<?xml", b"<head", b"<body")),
        "this is a web page, not a model, perhaps of a failed download or a log-in. Download the model itself.",
    ),
    (
        lambda head: head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"),
        f"this is a pickle with another name: {how_to_convert('.pkl')}",
    ),
    (
        # In UBJSON and in JSON, XGBoost's models begin with this key.
        lambda head: head.startswith(b"{") and b"learner" in head[:_XGBOOST_BYTES],
        how_to_convert(".ubj"),
    ),
    (lambda head: head.startswith((b"tree\nversion=", b"tree\r\nversion=")), how_to_convert(".txt")),
    (lambda head: head.startswith(b"CBM1"), how_to_convert(".cbm")),
    (
        lambda head: head.startswith(b"PK\3\4"),
        "this is a zip archive, as torch writes it. Export the model to ONNX (`millstream docs models`). If the archive holds an "
        "ONNX model, unpack it.",
    ),
    (lambda head: head.startswith(b"\x1f\x8b"), "this is compressed with gzip. Unpack it with gunzip."),
)
"""What the beginning of a file shows: a test, and what to say."""
