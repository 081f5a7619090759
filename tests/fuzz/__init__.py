"""Fuzzing of everything that reads bytes from others: `make fuzz`.

A target makes cases from a seed and checks each. Damage is generated here; what must hold is said by the target.
"""
