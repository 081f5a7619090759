"""Pointers of Git LFS: small text files that a checkout has in place of large files that were not fetched."""

from typing import Final

HEAD: Final = "version https://git-lfs.github.com/spec/"
"""How a pointer begins."""
FOUND: Final = "a pointer of Git LFS, not the file itself. Get the file: git lfs pull"
"""What a message says was found, and what to do."""
