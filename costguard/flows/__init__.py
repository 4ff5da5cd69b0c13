"""The product's table of contents: each file is one thing costguard does, its main function first."""
