"""Files that others wrote: bills and exports. CSV or JSON, packed by gzip or not, or Parquet; each error names its line.

`lines` opens one and bounds it, `table` is a header with rows, `records` are objects with keys, `cells` are values as text.
What a row means is nobody's business here.
"""
