"""Start-up of each process: settings and wiring. Only these modules name concrete adapters."""
