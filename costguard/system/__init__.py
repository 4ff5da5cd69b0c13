"""Operating system services: clock, TLS, DNS, file security, garbage collection, systemd."""
