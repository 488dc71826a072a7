"""Side-by-side measurements. Each writes `results/NAME-DEVICE.json`; the tables of the docs are made from these."""
