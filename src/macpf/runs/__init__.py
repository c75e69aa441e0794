"""Runs: directories, checkpoints, logs, and the loop that drives a training from Python."""
