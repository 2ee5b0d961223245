"""What a process of ours needs, whatever it does: logs, files that survive a crash, pauses that are known."""
