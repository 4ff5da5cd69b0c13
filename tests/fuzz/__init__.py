"""Fuzzing: six readers of strangers' text, their bounds in CPU time and memory, and the inputs that once passed a bound."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "integrations"))  # as pytest's own `pythonpath`: they are installed nowhere
