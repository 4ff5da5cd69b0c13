"""A program that unpacks the Parquet file on its standard input in limited memory, and writes its rows as an Arrow stream.

    python -I -m costguard.files.parquet_pages < bill.parquet

A page of 300 bytes can unpack to 2 GB, and a dictionary of one value of 1 MB that 4,096 rows refer to is 4 GB: pyarrow has no
limit for either, and a file's own statement of its sizes can be false. So the kernel limits the process.
"""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from costguard.system.file_security import disable_memory_dumps

MEMORY_BYTES, BATCH_BYTES = 2**30, 2**27
"""What may be taken beside the program itself (a group of rows has 128 MB as a rule, up to 512), and for rows at once."""
ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MIMALLOC_ARENA_RESERVE": "0"}
"""Arrow's own allocators reserve 1 GiB of addresses at once, which the limit would count."""
BATCH_ROWS, BATCH_CELLS = 4096, 2**20
MOST_ROWS = 10**8


def main() -> None:
    """Write the stream; end with a line that says why it cannot be read."""
    import pyarrow as pa
    from pyarrow import ipc, parquet

    limit_memory()
    disable_memory_dumps()
    try:
        file = parquet.ParquetFile(sys.stdin.buffer, pre_buffer=False)
        if file.metadata.num_rows > MOST_ROWS:
            sys.exit(f"it has {file.metadata.num_rows} rows, more than {MOST_ROWS}")
        columns = file.schema_arrow
        if any(pa.types.is_nested(one) and "dictionary<" in str(one) for one in columns.types):
            sys.exit("a column has dictionaries within lists or records")
        schema = pa.schema([one.with_type(one.type.value_type) if pa.types.is_dictionary(one.type) else one for one in columns])
        size = max(1, min(BATCH_ROWS, BATCH_CELLS // max(1, len(columns))))
        with ipc.new_stream(sys.stdout.buffer, schema) as stream:
            for batch in file.iter_batches(batch_size=size, use_threads=False):
                write_batch(stream, pa.record_batch([_unpack(pa, column) for column in batch.columns], schema=schema))
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as broken:
        sys.exit(f"MemoryError: {broken}" if isinstance(broken, MemoryError) else str(broken))


def write_batch(stream: Any, batch: Any) -> None:  # noqa: ANN401 - no types
    """Write rows, unless they take more than BATCH_BYTES."""
    if batch.nbytes > BATCH_BYTES:
        sys.exit(f"{batch.num_rows} rows of it take more than {BATCH_BYTES >> 20} MiB")
    stream.write_batch(batch)


def _unpack(pa: Any, column: Any) -> Any:  # noqa: ANN401 - no types
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def limit_memory() -> None:
    """Limit what this process may take to MEMORY_BYTES beside what it has now."""
    with suppress(OSError, ValueError, IndexError):  # a system without /proc, or with lower limits
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    main()
