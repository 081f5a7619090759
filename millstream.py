"""The `millstream` command's entry.

Our packages have common names (`schemas`, `topics`). A user may run the command from a folder, or with a PYTHONPATH, that
holds packages of the same names, so ours are imported here from their files, before the import path is asked.
"""

import importlib.util
import sys
from pathlib import Path

PACKAGES = ("schemas", "topics", "inference", "consumers")
ROOT = Path(__file__).resolve().parent


def claim_packages(root: Path = ROOT) -> None:
    """Import our top-level packages from `root`; a package of the same name elsewhere on the path is not looked at."""
    for name in PACKAGES:
        folder = root / name
        spec = importlib.util.spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None or not folder.is_dir():
            raise ImportError(f"Millstream is not whole: {folder} is missing. Install it again.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)


def main() -> int:
    """Run the command line; returns the exit code (0 done, 1 failed, 2 wrong use)."""
    claim_packages()
    from consumers.cli import main as cli_main  # noqa: PLC0415  (only after our packages are claimed)

    return cli_main.run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
