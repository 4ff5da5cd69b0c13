"""Views: each module turns one kind of answer into a Document, without I/O; `renderers` formats any Document."""
