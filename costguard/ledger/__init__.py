"""The only package that uses SQL: the ledger of spending, and the market file of offers."""
