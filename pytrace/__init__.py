"""pytrace: compile awk-like tracing scripts to BPF and run them in the Linux kernel."""

__version__ = "0.1.0"
