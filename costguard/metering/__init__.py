"""From listings to money: inventories in; spans, coverage and charges out.

Pure. Read `accrual` first: it turns one poll into the rows that the ledger writes. `billing` holds the rules, as data, for
which lines bill; `span` computes the cost of spans.
"""
