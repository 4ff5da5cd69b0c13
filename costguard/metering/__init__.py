"""From what providers say of their resources to money: inventories in; spans, coverage and charges out.

Read `accrual` first: it turns one poll into what the ledger writes. `span` turns spans into money, `billing` turns an
observation into what bills, by rules that are data. Everything here is pure.
"""
