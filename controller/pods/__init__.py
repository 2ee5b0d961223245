"""What is done to pods: evaluators injected, run for users, restarted; and flags judged at admission."""
