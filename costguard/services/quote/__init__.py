"""What a job needs, costs and where: quote, size, offers, prices."""
