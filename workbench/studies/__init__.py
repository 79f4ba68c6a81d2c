"""Studies: what is asked of the recorded runs, computed into frames that charts draw and the paper quotes."""
