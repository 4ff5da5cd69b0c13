"""Notebooks: 20 cells that show quotes, sizes, reports and plots, executed; the size of the file that is saved.

python -m bench.notebook        needs: pip install nbclient ipykernel pandas matplotlib
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

BYTES_MAX = 300_000
"""Issue 44: 11 MB before, because the repr of an answer was stored beside its table."""
CELLS = (
    "import costguard as cg",
    'small = cg.quote(model="llama-3.1-8b", method="qlora", tokens=50e6)\nsmall',
    "small.best",
    "small.best.usd",
    "str(small.best.usd), small.best.usd.expected * 2",
    "small.to_frame().head()",
    "small.plot()",
    'large = cg.quote(model="llama-3.1-70b", method="lora", tokens="10M")\nlarge',
    "large.options[:5]",
    "large.to_frame()",
    'cg.quote(gpu="H100", hours=12)',
    'cg.quote(gpu="A100", count=8, hours=24)',
    'cg.size(model="gpt2", method="full", on="T4:1")',
    'cg.size(model="llama-3.1-8b", method="lora")',
    "report = cg.report()\nreport",
    "report.to_frame()",
    "report.plot()",
    'cg.report(by="owner")',
    "now = cg.status()\nnow",
    "[small, large, report, now]",
)


def main() -> int:
    """0 where every cell runs and the notebook is small."""
    nbformat, nbclient = import_module("nbformat"), import_module("nbclient")
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "demo.db"
        subprocess.run([sys.executable, "-m", "costguard", "demo", "--ledger", str(ledger)], check=True, capture_output=True)
        os.environ["COSTGUARD_LEDGER__URL"] = f"sqlite:///{ledger}"
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
        nbclient.NotebookClient(notebook, timeout=300, allow_errors=True, resources={"metadata": {"path": folder}}).execute()
    sizes = {cell.source: len(nbformat.writes(nbformat.v4.new_notebook(cells=[cell]))) for cell in notebook.cells}
    failed = [(cell.source, out.evalue) for cell in notebook.cells for out in cell.outputs if out.output_type == "error"]
    for source, size in sorted(sizes.items(), key=lambda one: -one[1])[:5]:
        print(f"{size / 1000:7.1f} kB  {source.splitlines()[0]}")
    for source, why in failed:
        print(f"FAILS  {source.splitlines()[-1]}: {why}")
    total = len(nbformat.writes(notebook))
    print(f"{len(CELLS)} cells, {total / 1e6:.3f} MB, {'meets' if total <= BYTES_MAX else 'MISSES'} {BYTES_MAX / 1e6} MB")
    return int(total > BYTES_MAX or bool(failed))


if __name__ == "__main__":
    sys.exit(main())
