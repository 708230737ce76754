"""Learning spread over many machines, some of them slow or dead."""
