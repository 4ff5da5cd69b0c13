"""The machine under costguard: clock, TLS, DNS, file security, garbage collection, systemd."""
