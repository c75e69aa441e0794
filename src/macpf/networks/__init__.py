"""Networks: each takes one agent at one moment."""
