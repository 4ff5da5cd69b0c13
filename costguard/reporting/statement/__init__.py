"""The statement of a period, as printed by `report`.

`groups` sums the costs by group, and `period` parses the requested period; `waste`, `savings`, `sections` and `history` hold
the further sections; `statement` combines them.
"""
