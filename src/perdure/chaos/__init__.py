"""The chaos harness: real workers that are killed, stopped, cut off and told wrong times while every kind of job runs; then
the proof, from the database, that nothing was lost, doubled or written by a dead worker. The command is `perdure chaos`."""
