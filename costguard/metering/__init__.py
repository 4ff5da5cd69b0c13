"""From listings to money: inventories in; spans, coverage and charges out. Pure.

Read `accrual` first: it turns one poll into what the ledger writes. `billing` says what bills, by rules that are data; `span`
turns spans into money.
"""
