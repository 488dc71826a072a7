"""One Prefect task per stage: retries, timeouts, caching and artifacts. The work itself is in nemotron_rl."""
