"""Real processes, killed, stopped and cut off: nothing acknowledged is lost, nothing recorded happens twice."""
