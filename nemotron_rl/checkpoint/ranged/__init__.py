"""Reading parts of a checkpoint that lies somewhere else: what to fetch, from where, and how to survive faults."""
