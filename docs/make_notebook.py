"""Executes the notebook of the tutorials and writes it as a page: `python docs/make_notebook.py`.

The notebook keeps its outputs, so that it reads the same wherever notebooks are shown. The page shows the same cells; its
pictures and films are files in a folder of their own. This needs nbclient and ipykernel.
"""

import base64
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent / "tutorials" / "notebook.ipynb"
PAGE = NOTEBOOK.with_suffix(".md")
PICTURES = NOTEBOOK.with_suffix("")


def main() -> None:
    notebook = executed(read())
    nbformat.write(notebook, NOTEBOOK)
    PICTURES.mkdir(exist_ok=True)
    for old in PICTURES.iterdir():
        old.unlink()
    text, pictures = page(notebook)
    PAGE.write_text(text)
    for name, data in pictures.items():
        (PICTURES / name).write_bytes(data)


def read() -> Any:
    """Returns the notebook as it is stored."""
    return nbformat.read(NOTEBOOK, as_version=4)


def executed(notebook: Any) -> Any:
    """Returns the notebook with fresh outputs; it runs in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of execution
    notebook.metadata.pop("language_info", None)
    return notebook


def page(notebook: Any) -> tuple[str, dict[str, bytes]]:
    """Returns the notebook as a Markdown page, and its pictures by file name."""
    pictures: dict[str, bytes] = {}
    parts = ["<!-- Written by docs/make_notebook.py. -->"]
    for cell in notebook.cells:
        parts.append(cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```")
        parts += [_output(output, pictures) for output in cell.get("outputs", ())]
    return "\n\n".join(parts) + "\n", pictures


def _output(output: Any, pictures: dict[str, bytes]) -> str:
    """Returns the output of a cell: HTML if it has some, else text."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "text/html" not in data:
        return f"```text\n{data['text/plain'].rstrip()}\n```"

    def save(match: re.Match[str]) -> str:
        name = f"{len(pictures) + 1}.{match[1]}"
        pictures[name] = base64.b64decode(match[2])
        return f'src="{PICTURES.name}/{name}"'

    html = re.sub(r"<style.*?</style>", "", data["text/html"], flags=re.DOTALL)
    html = re.sub(r'src="data:image/(\w+);base64,([^"]+)"', save, html)
    html = re.sub(r'<table border="1" class="dataframe">', "<table>", html)
    return f'<div class="output">{" ".join(html.split())}</div>'


if __name__ == "__main__":
    main()
