"""When does memory help? Reward structure against memory (R1-R8)."""
