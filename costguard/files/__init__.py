"""Reads files from other systems (bills, exports): CSV or JSON, also gzipped, or Parquet; errors name the line.

`lines` opens a file and limits its size, `table` reads a header with rows and formats cells as text, and `records` reads
objects with keys. The meaning of a row is decided elsewhere.
"""
