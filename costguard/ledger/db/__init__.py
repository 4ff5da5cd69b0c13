"""Opening, schema, connections and maintenance of the ledger database."""
