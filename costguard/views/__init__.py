"""Answers as documents: one file for each kind of answer, pure, no format in it. `reports/` renders any of them."""
