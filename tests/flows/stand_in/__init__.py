"""Jobs with the real ones' requests and results, in milliseconds: to test what surrounds them."""
