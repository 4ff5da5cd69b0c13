"""What people are told: alerts, when they hold, and which notifications they become."""
