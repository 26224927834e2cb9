"""One image on paper: its names, inputs, key, rendered files and expected contents. No network, no engine."""
