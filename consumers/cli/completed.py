"""How shells complete arguments, as shtab takes it: shell -> a function or an expression. It imports no shtab."""

PAGES_FUNCTION = "_millstream_pages"
FILES = {
    "bash": "_shtab_compgen_files",
    "zsh": "_files",
    "fish": "(__fish_complete_path (commandline -ct))",
    "tcsh": "f",
}
"""A path, as `shtab.FILE`."""
PIPELINE_FILES = {
    "bash": "_millstream_pipelines",
    "zsh": "_files -g '*.yaml'",
    "fish": "(__fish_complete_suffix .yaml)",
    "tcsh": "f:*.yaml",
}
"""A YAML file, or a folder on the way to one."""


def words(function: str, known: list[str]) -> dict[str, str]:
    """One of these words. `function` of bash knows them, see `bash_functions`."""
    text = " ".join(known)
    return {"bash": function, "zsh": f"({text})", "fish": text, "tcsh": f"({text})"}


def bash_functions(pages: list[str]) -> str:
    """The functions that the script for bash needs."""
    return (
        '_millstream_pipelines() { compgen -d -- "$1"; compgen -f -X \'!*.yaml\' -- "$1"; }\n'
        f"{PAGES_FUNCTION}() {{ compgen -W '{' '.join(pages)}' -- \"$1\"; }}\n"
    )
