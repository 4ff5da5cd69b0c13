"""One file a subject: each makes a router of the parts that it serves."""
