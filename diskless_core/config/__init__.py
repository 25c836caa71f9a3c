"""The broker's configuration: `server.properties`, the environment and the command line, in models."""
