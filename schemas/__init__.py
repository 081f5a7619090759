"""Record shapes and codecs. Imports nothing else of ours."""
