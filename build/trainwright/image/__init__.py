"""One image before it is built: its names, inputs, key, rendered files and expected contents. No network, no engine."""
