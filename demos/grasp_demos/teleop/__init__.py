"""People who record demonstrations: what they can ask for, and the devices they ask with.

A device is one file here with an `Operator` (see `operator.py`) and one entry in `sources.py`.
"""
