"""Cold start of `costguard mcp`: the SDK's client starts it, lists the tools and gets a quote. `python -m bench.mcp_start`."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time

import anyio
from mcp import Client, StdioServerParameters

GOAL_S = 1.5
"""Issue 26: tools listed and a quote answered, cold, on an idle machine."""
TRIES = 7
JOB = {"model": "llama-3.1-8b", "method": "qlora", "tokens": "50e6"}


async def measure_start(folder: str) -> tuple[float, float]:
    """Return the seconds from the start of the process until the tools are listed, and until a quote is answered."""
    command = StdioServerParameters(command=sys.executable, args=["-m", "costguard", "mcp"], cwd=folder)
    began = time.perf_counter()
    async with Client(command) as client:
        await client.list_tools()
        listed = time.perf_counter() - began
        answer = await client.call_tool("quote", dict(JOB))
        quoted = time.perf_counter() - began
    if answer.is_error:
        raise SystemExit(f"no quote: {answer.content}")
    return listed, quoted


def main() -> None:
    """Print the best and the median of several cold starts, beside the goal."""
    with tempfile.TemporaryDirectory() as folder:
        found = [anyio.run(measure_start, folder) for _ in range(TRIES)]
    for name, values in (("tools listed", [one[0] for one in found]), ("a quote answered", [one[1] for one in found])):
        print(f"{name:18} best {min(values):.2f} s, median {statistics.median(values):.2f} s (goal {GOAL_S} s)")
    sys.exit(min(one[1] for one in found) > GOAL_S)


if __name__ == "__main__":
    main()
