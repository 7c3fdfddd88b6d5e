"""Why a job is not moving: the explanation, and which workers could take it."""
