"""The only room that knows SQL: the ledger of what was spent, and the file of what is for sale."""
